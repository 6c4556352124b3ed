#!/usr/bin/env bash
# The kernel tests on a build of the native library with the address and undefined-behaviour sanitizers, at every ISA
# level that this machine runs. Needs g++ (or CXX) with its sanitizer libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(cd "${1:-.venv/bin}" && pwd)
compiler=${CXX:-g++}
cpu=plugins/platforms/cpu
out=$PWD/build/native-sanitized
library=$out/libturret_cpu.so
mkdir -p "$out"

newest=$(ls -t $cpu/native/* $cpu/hatch_build.py scripts/native_sanitized.sh "$library" 2>/dev/null | head -n 1 || true)
if [ "$newest" != "$library" ]; then
  echo "[native] building with sanitizers (minutes)"
  # Faults end the process; a wrapped sum of unsigned numbers is none.
  CXX="$compiler -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all" \
    "$bin/python" -c "
import sys
from pathlib import Path
sys.path.insert(0, '$cpu')
import hatch_build
hatch_build.COMMON = tuple('-O1' if flag == '-O3' else flag for flag in hatch_build.COMMON)
hatch_build.build(Path('$cpu/native'), Path('$library'))"
fi

runtime=
for name in libasan.so libubsan.so; do
  found=$($compiler -print-file-name=$name)
  [ "$found" != "$name" ] || { echo "[native] $compiler has no $name" >&2; exit 1; }
  runtime=${runtime:+$runtime:}$found
done
# Python and torch leak on purpose at the end; what the library does is all that counts here.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:${ASAN_OPTIONS:-} UBSAN_OPTIONS=print_stacktrace=1
export TURRET_CPU_LIBRARY=$library PYTHONMALLOC=malloc OMP_NUM_THREADS=1
tests=${TESTS:-$(ls $cpu/tests/test_*.py | grep -v -e test_pool.py -e test_platform.py)}
echo "[native] kernel tests on $library"
# shellcheck disable=SC2086 - a list of files
LD_PRELOAD=$runtime exec "$bin/python" -m pytest -q -m "not gpu" -p no:cacheprovider ${PYTEST_ARGS:-} $tests
