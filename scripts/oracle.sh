#!/usr/bin/env bash
# Clients that others wrote, against `turret serve`: in an environment of their own, so that turret's stays lean.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:-.venv/bin}")
venv=.venv-oracle
wanted=tests/clients/requirements.txt
if ! cmp -s "$wanted" "$venv/.requirements"; then
  [ -x "$venv/bin/python" ] || "$bin/python" -m venv "$venv"
  "$venv/bin/pip" install -q -r "$wanted"
  cp "$wanted" "$venv/.requirements"
fi
node=$venv/node
if command -v npm > /dev/null; then
  if ! cmp -s tests/clients/package.json "$node/.wanted"; then
    mkdir -p "$node"
    cp tests/clients/package.json "$node/package.json"
    npm install --prefix "$node" --no-package-lock --no-audit --no-fund --silent
    cp tests/clients/package.json "$node/.wanted"
  fi
  cp tests/clients/*.mjs "$node"  # a module finds what lies beside it
  export TURRET_NODE_CLIENTS=$PWD/$node
fi
export TURRET_BIN=$bin HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_DATASETS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export PYTHONPATH=tests/clients  # what tests share lies beside them
exec "$venv/bin/python" -m pytest tests/clients ${PYTEST_ARGS:-}
