#!/usr/bin/env bash
# The whole suite: CPU only, no network, no hub.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-.venv/bin}
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
# torch's own threads help nothing as small as a test and spin meanwhile: a third of the processor time was theirs. What
# computes on several threads under test asks for them by itself.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec "$bin/python" -m pytest -m "not slow and not gpu" ${PYTEST_ARGS:-}
