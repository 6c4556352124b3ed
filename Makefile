# The front door for people: make serve · make test · make lint · make bench
# The interpreter that makes the environment; empty: the first of 3.11, 3.12 and 3.13 that runs.
PYTHON ?=
# Where `make serve` listens, and more options of `turret serve` for it.
PORT ?= 8000
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup serve test test-native lint types bench oracle clean

setup: $(VENV)/.setup.stamp

# Re-run when a distribution's metadata changes; otherwise this is a no-op.
$(VENV)/.setup.stamp: scripts/setup.sh scripts/requirements-dev.txt $(wildcard core/pyproject.toml plugins/*/*/pyproject.toml plugins/*/*/hatch_build.py plugins/*/*/native/*)
	@PYTHON="$(PYTHON)" bash scripts/setup.sh $(VENV)
	@touch $@

serve: setup
	@$(BIN)/turret serve demo --port $(PORT) $(ARGS)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports

types: setup
	@bash scripts/types.sh $(BIN)

test: lint types
	@bash scripts/test.sh $(BIN)

# The kernel tests on a build of the native library with the address and undefined-behaviour sanitizers.
test-native: setup
	@bash scripts/native_sanitized.sh $(BIN)

# Suites of clients that others wrote; downloads them once, into an environment of their own.
oracle: setup
	@bash scripts/oracle.sh $(BIN)

bench: setup
	@$(BIN)/python benchmarks/startup.py
	@$(BIN)/python benchmarks/offline.py

clean:
	rm -rf $(VENV) .venv-oracle build dist .mypy_cache .ruff_cache .import_linter_cache .hypothesis
