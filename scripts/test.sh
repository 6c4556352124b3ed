#!/usr/bin/env bash
# The whole suite: CPU only, no network, no hub.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-.venv/bin}
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec "$bin/python" -m pytest -m "not slow and not gpu" ${PYTEST_ARGS:-}
