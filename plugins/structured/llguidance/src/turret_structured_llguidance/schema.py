"""Which specs llguidance can be held to.

Owns: `complaint`, a look at a spec that finds what llguidance would pass over. Knows nothing of the library.

The library refuses keywords of JSON Schema that it knows and does not implement; names it has never heard of, and
options of its own inside a schema, it takes. Here only what it implements is let through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from turret.contracts import GrammarSpec

__all__ = ["complaint"]

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "$schema", "deprecated", "readOnly", "writeOnly"})
ASSERTIONS = frozenset({
    "type", "const", "enum", "required", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "format", "$ref",
    "minProperties", "maxProperties",
})  # fmt: skip
OF_ONE = frozenset({"items", "additionalProperties"})
OF_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions"})
SPACE_PATTERN = re.compile(r"(?:(?:\[(?: |\\[ntr])+\]| |\\[ntr])(?:[?*+]|\{\d{1,2}(?:,\d{0,2})?\})?){1,8}")
MOST = 4096
"""The largest bound on lengths and numbers of items or properties."""
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


def complaint(spec: GrammarSpec) -> str | None:
    """Why llguidance cannot be held to a spec, in one sentence; None if it can, as far as a look tells."""
    if spec.kind == "structural_tag":
        return "structural tags are not supported"
    if spec.kind == "grammar" and spec.text.lstrip().startswith("{"):
        return "a grammar is Lark or EBNF, no JSON"
    if spec.kind == "grammar" and re.search(r"%(json|llguidance|regex)", spec.text):
        return "%json, %regex and %llguidance are not supported in a grammar"
    if spec.whitespace_pattern is not None and not SPACE_PATTERN.fullmatch(spec.whitespace_pattern):
        return r"whitespace_pattern must be made of spaces, \n, \t and \r, in brackets or not, each with its count"
    if spec.kind != "json":
        return None
    schema = json.loads(spec.text)
    try:
        return next(_strange(schema, "#"), None) or next(_loops(schema, schema, frozenset()), None)
    except RecursionError:
        return "the schema is nested too deeply"


def _strange(node: Any, at: str) -> Iterator[str]:
    if isinstance(node, bool):
        return
    if not isinstance(node, dict):
        yield f"{at}: a schema is an object or a boolean"
        return
    for name, value in node.items():
        if name in ANNOTATIONS or name in ASSERTIONS:
            if name in COUNTS and not (isinstance(value, int) and 0 <= value <= MOST):
                yield f"{at}: {name} must be between 0 and {MOST}"
            elif name == "minProperties" and value > 1:
                # A name may come twice, and then the two count for one.
                yield f"{at}: minProperties above 1 is not supported"
            if name == "$ref" and not (isinstance(value, str) and (value == "#" or value.startswith("#/"))):
                yield f"{at}: $ref {value!r} does not point into the schema itself"
        elif name == "$id" and at == "#":
            continue  # a name; below the root it would change what references mean
        elif name in OF_ONE:
            yield from _strange(value, f"{at}/{name}")
        elif name in OF_MANY and isinstance(value, list):
            for number, item in enumerate(value):
                yield from _strange(item, f"{at}/{name}/{number}")
        elif name in BY_NAME and isinstance(value, dict):
            for key, item in value.items():
                yield from _strange(item, f"{at}/{name}/{key}")
        else:
            yield f"{at}: {name} is not supported"


def _loops(root: Any, node: Any, through: frozenset[str]) -> Iterator[str]:
    """References that lead back to themselves with nothing in between; those behind a property or an item do not."""
    if not isinstance(node, dict):
        return
    ref = node.get("$ref")
    if isinstance(ref, str):
        if ref in through:
            yield f"$ref {ref} leads back to itself with nothing in between"
            return
        yield from _loops(root, _found(root, ref), through | {ref})
    for name, value in node.items():
        if name in ("allOf", "anyOf", "oneOf") and isinstance(value, list):
            for item in value:
                yield from _loops(root, item, through)
        elif not through and name in BY_NAME and isinstance(value, dict):
            for item in value.values():
                yield from _loops(root, item, through)
        elif not through and name in OF_ONE:
            yield from _loops(root, value, through)


def _found(root: Any, ref: str) -> Any:
    for part in ref.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        root = root.get(part) if isinstance(root, dict) else None
    return root
