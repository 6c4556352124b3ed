#!/usr/bin/env bash
# Draft 2020-12 of the JSON-Schema-Test-Suite against the grammars of both backends, over the demo's tokenizer. The suite
# comes out of the source distribution of the jsonschema package, once.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:-.venv/bin}")
suite=build/schema-suite
if [ ! -d "$suite/draft2020-12" ]; then
  mkdir -p "$suite"
  "$bin/python" -m pip download -q --no-deps --no-binary :all: -d "$suite" jsonschema==4.26.0
  tar -xzf "$suite"/jsonschema-*.tar.gz -C "$suite" --strip-components=3 --wildcards '*/json/tests/draft2020-12'
fi
JSON_SCHEMA_SUITE=$suite/draft2020-12 exec "$bin/python" -m pytest -s tests/oracle/test_json_schemas.py
