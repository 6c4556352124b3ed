"""Arguments whose values arrive as raw text: written as one JSON object while they arrive.

Owns the object's punctuation, types by schema, and which values can be told before they are complete. Knows no format.
"""

from __future__ import annotations

import json

from turret_parser_tool.calls import Calls
from turret_parser_tool.json_text import quoted
from turret_parser_tool.values import is_text, json_of, property_schema

__all__ = ["ArgumentWriter", "RawValue"]


class ArgumentWriter:
    """Writes the arguments of the open call."""

    def __init__(self, calls: Calls, tool: str) -> None:
        self._calls = calls
        self._schema = calls.schemas.get(tool, {})
        self._keys: set[str] = set()

    def value(self, key: str, text: bool | None = None) -> RawValue:
        """The value of `key`, to be added to. `text` says that it is a string, or is not, whatever the schema says.

        A key that was there before is read and not told: its first value was.
        """
        if key in self._keys:
            return RawValue(None, "", None)
        head = f"{', ' if self._keys else '{'}{json.dumps(key, ensure_ascii=False)}: "
        self._keys.add(key)
        schema = property_schema(self._schema, key)
        if text is not None:
            schema = {"type": "string"} if text else schema if schema and not is_text(schema) else None
        return RawValue(self._calls, head, schema)

    def whole(self, key: str, json_text: str) -> None:
        """A value that is JSON already."""
        if key not in self._keys:
            self._calls.arguments(f"{', ' if self._keys else '{'}{json.dumps(key, ensure_ascii=False)}: {json_text}")
            self._keys.add(key)

    def close(self) -> None:
        """No more values."""
        if self._keys:
            self._calls.arguments("}")


class RawValue:
    """One value as its text arrives; a string is told at once, anything else when it is complete."""

    def __init__(self, calls: Calls | None, head: str, schema: object) -> None:
        self._calls = calls
        self._schema = schema if isinstance(schema, dict) else None
        self._parts: list[str] = []
        self._streams = calls is not None and is_text(self._schema)
        self._head = head
        if self._streams and calls is not None:
            calls.arguments(head + '"')

    def add(self, text: str) -> None:
        """More of its text."""
        if self._streams and self._calls is not None:
            self._calls.arguments(quoted(text))
        elif self._calls is not None:
            self._parts.append(text)

    def close(self) -> None:
        """It is complete."""
        if self._calls is not None:
            rest = '"' if self._streams else self._head + json_of("".join(self._parts), self._schema)
            self._calls.arguments(rest)
