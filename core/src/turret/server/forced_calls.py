"""Calls that a client forces: `tool_choice` `required` or a named function.

Owns: the form that makes the answer a call, and reading it back. Knows no model's way to write calls: a forced call is
JSON, a list of `{"name": ..., "parameters": ...}` or, of a named function, its arguments alone, as in vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from turret.contracts import ParserEvent, ToolArgumentsDelta, ToolCallEnd, ToolCallStart
from turret.errors import RequestError
from turret.server.wire import ChatRequest
from turret.structured import StructuredOutputsParams

__all__ = ["ForcedCalls", "forced_form", "forced_name", "forces_calls"]

_ANYTHING: dict[str, Any] = {"type": "object", "properties": {}}
"""Parameters of a function that declares none."""


def forces_calls(body: ChatRequest) -> bool:
    """Whether the answer has to be a call."""
    return body.tool_choice == "required" or isinstance(body.tool_choice, dict)


def forced_name(body: ChatRequest) -> str | None:
    """The function that is named; `tool_choice` was checked."""
    return str(body.tool_choice["function"]["name"]) if isinstance(body.tool_choice, dict) else None


def forced_form(body: ChatRequest) -> StructuredOutputsParams:
    """What the answer must look like. Raises `RequestError` for a body that asks for another form too."""
    if body.structured_outputs is not None or (body.response_format or {}).get("type", "text") != "text":
        raise RequestError("tool_choice forces a call, whose form it decides; leave structured_outputs and "
                           "response_format out", "tool_choice")
    functions = [tool["function"] for tool in body.tools or ()]
    named = forced_name(body)
    if named is not None:
        chosen = next(function for function in functions if function["name"] == named)
        return StructuredOutputsParams(json=_parameters(chosen))
    kept: dict[str, Any] = {}
    calls = []
    for number, function in enumerate(functions):
        place = f"f{number}"
        kept[place] = _moved(_parameters(function), f"#/$defs/{place}")
        members = {"name": {"const": function["name"]}, "parameters": {"$ref": f"#/$defs/{place}"}}
        calls.append({"type": "object", "properties": members, "required": list(members),
                      "additionalProperties": False})
    schema: dict[str, Any] = {"$defs": kept, "type": "array", "items": {"anyOf": calls}, "minItems": 1}
    if body.parallel_tool_calls is False:
        schema["maxItems"] = 1
    return StructuredOutputsParams(json=schema)


class ForcedCalls:
    """Session (contract `ParserSession`) that reads a forced call, of a function that is `named` or of any."""

    def __init__(self, named: str | None) -> None:
        self._named = named
        self._index = -1
        self._key: str | None = None  # the member whose value comes next
        self._text: list[str] = []  # of the string being read, quotes included
        self._string = self._escaped = False
        self._depth = 0  # of braces in arguments; 0 outside
        self._closed = False

    def feed(self, text: str, ids: Sequence[int]) -> list[ParserEvent]:
        """See the contract."""
        events: list[ParserEvent] = []
        if self._named is not None:
            self._feed_named(text, self._named, events)
            return events
        arguments: list[str] = []
        for char in text:
            if self._depth:
                arguments.append(char)
                self._inside(char)
                if not self._depth:
                    events += [ToolArgumentsDelta(self._index, "".join(arguments)), ToolCallEnd(self._index)]
                    arguments = []
            else:
                self._outside(char, events, arguments)
        if arguments:
            events.append(ToolArgumentsDelta(self._index, "".join(arguments)))
        return events

    def finish(self) -> list[ParserEvent]:
        """See the contract; a call that was cut off ends as it is."""
        if self._named is None or self._index < 0 or self._closed:
            return []
        self._closed = True
        return [ToolCallEnd(0)]

    def _feed_named(self, text: str, name: str, events: list[ParserEvent]) -> None:
        if self._index < 0:
            text = text.lstrip()
            if not text:
                return
            self._index = 0
            events.append(ToolCallStart(0, name))
        if text:
            events.append(ToolArgumentsDelta(0, text))

    def _inside(self, char: str) -> None:
        """One character of arguments: how deep it is."""
        if self._string:
            if self._escaped:
                self._escaped = False
            elif char == "\\":
                self._escaped = True
            elif char == '"':
                self._string = False
        elif char == '"':
            self._string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1

    def _outside(self, char: str, events: list[ParserEvent], arguments: list[str]) -> None:
        """One character around arguments: names of members, and the name of the function."""
        if self._string:
            self._text.append(char)
            if self._escaped:
                self._escaped = False
            elif char == "\\":
                self._escaped = True
            elif char == '"':
                self._string = False
                self._take(json.loads("".join(self._text)), events)
        elif char == '"':
            self._string, self._text = True, [char]
        elif char == "{" and self._key == "parameters":
            self._key, self._depth = None, 1
            arguments.append(char)

    def _take(self, text: str, events: list[ParserEvent]) -> None:
        if self._key == "name":
            self._index += 1
            events.append(ToolCallStart(self._index, text))
            self._key = None
        else:
            self._key = text


def _parameters(function: dict[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters")
    if schema is None or schema == {}:
        return _ANYTHING
    if not isinstance(schema, dict):
        raise RequestError(f"the parameters of {function['name']!r} must be a JSON schema", "tools")
    return schema


def _moved(schema: Any, place: str) -> Any:
    """A schema that stands at `place` of another: what it refers to in itself is there now."""
    if isinstance(schema, list):
        return [_moved(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {}
    for name, value in schema.items():
        if name == "$ref" and isinstance(value, str) and value.startswith("#"):
            made[name] = place + value[1:]
        else:
            made[name] = value if name in ("const", "enum", "default", "examples") else _moved(value, place)
    return made
