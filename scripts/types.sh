#!/usr/bin/env bash
# mypy strict on all of src, in one run: plugins are checked against the core they are written for.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-.venv/bin}
paths=(core/src/turret)
roots=core/src
for d in plugins/*/*/src/*/; do
  [ -f "$d/__init__.py" ] || continue
  paths+=("${d%/}")
  roots=$roots:$(dirname "$d")
done
MYPYPATH=$roots "$bin/mypy" --no-error-summary "${paths[@]}"
echo "types: ok (${#paths[@]} packages)"
