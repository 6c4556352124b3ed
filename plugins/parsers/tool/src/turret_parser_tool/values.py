"""Raw text of a parameter to a JSON value, by the tool's schema.

Owns the rules of conversion. A text that does not fit what is declared stays text: a call is never dropped for it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["is_text", "json_of", "property_schema"]

MAX_DEPTH = 16  # of references and combinations in a schema
MAX_LITERAL = 1 << 16  # characters up to which text is tried as a Python literal
INTEGER = re.compile(r"[+-]?\d+\Z")
WHOLE = re.compile(r"[+-]?\d+\.0+\Z")
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
ORDER = ("null", "boolean", "integer", "number", "array", "object", "string")


def property_schema(parameters: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """The schema of parameter `key`, None if it is not declared. `$ref`s are looked up in `parameters`."""
    properties = parameters.get("properties")
    found = properties.get(key) if isinstance(properties, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    return {**found, "$defs": parameters.get("$defs", {}), "definitions": parameters.get("definitions", {})}


def is_text(schema: Mapping[str, Any] | None) -> bool:
    """Whether every value is a string, so that its text can be told as it arrives."""
    return schema is not None and _types(schema) == {"string"}


def json_of(text: str, schema: Mapping[str, Any] | None) -> str:
    """The JSON text of a value."""
    types = set() if schema is None else _types(schema)
    if not types:
        value = _structure(text, (dict, list, int, float, bool, type(None)))
        return _dump(text if value is _NONE else value)
    for name in ORDER:
        if name in types:
            value = _as(name, text)
            if value is not _NONE:
                return _dump(value)
    return _dump(text)


_NONE = object()


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _as(name: str, text: str) -> Any:
    """The text as a value of a type, `_NONE` if it is none."""
    word = text.strip()
    if name == "string":
        return text
    if name == "null":
        return None if word.lower() in ("null", "none") else _NONE
    if name == "boolean":
        return {"true": True, "false": False}.get(word.lower(), _NONE)
    if name == "integer":
        return int(word.split(".")[0]) if _short(word) and (INTEGER.match(word) or WHOLE.match(word)) else _NONE
    if name == "number":
        return _number(word)
    return _structure(text, (list,) if name == "array" else (dict,))


def _short(word: str) -> bool:
    return len(word) < 4000  # Python converts no longer digits


def _number(word: str) -> Any:
    if not NUMBER.match(word) or not _short(word):
        return _NONE
    if INTEGER.match(word):
        return int(word)
    value = float(word)
    return value if value - value == 0 else _NONE


def _structure(text: str, kinds: tuple[type, ...]) -> Any:
    """The text as JSON, or else as a Python literal."""
    try:
        value = json.loads(text, parse_constant=lambda name: _NONE)
    except (ValueError, RecursionError):
        value = _literal(text)
    return value if isinstance(value, kinds) and _plain(value) else _NONE


def _literal(text: str) -> Any:
    if len(text) > MAX_LITERAL or not text.strip().startswith(("[", "(", "{", "True", "False", "None")):
        return _NONE
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return _NONE
    return list(value) if isinstance(value, tuple) else value


def _plain(value: object) -> bool:
    """Whether JSON can hold it."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _types(schema: Mapping[str, Any]) -> set[str]:
    return {name for name in _walk(schema, schema, 0) if name in ORDER}


def _walk(schema: object, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return
    named = schema.get("type")
    yield from (
        [named]
        if isinstance(named, str)
        else [n for n in named if isinstance(n, str)]
        if isinstance(named, list)
        else []
    )
    if schema.get("nullable") is True:
        yield "null"
    if named is None:
        yield from (_type_of(value) for value in _constants(schema))
    if isinstance(schema.get("$ref"), str):
        yield from _walk(_referred(schema["$ref"], root), root, depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(word)
        for part in parts if isinstance(parts, list) else ():
            yield from _walk(part, root, depth + 1)


def _constants(schema: Mapping[str, Any]) -> list[object]:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else []


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _referred(reference: str, root: Mapping[str, Any]) -> object:
    found: object = root
    if not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/"):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part.replace("~1", "/").replace("~0", "~"))
    return found
