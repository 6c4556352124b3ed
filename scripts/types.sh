#!/usr/bin/env bash
# mypy strict on all of src, one run per distribution: each is checked as its users see it.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-.venv/bin}
paths=(core/src/turret)
for d in plugins/*/*/src/*/; do [ -f "$d/__init__.py" ] && paths+=("${d%/}"); done
"$bin/mypy" --no-error-summary "${paths[@]}" && echo "types: ok (${#paths[@]} packages)"
