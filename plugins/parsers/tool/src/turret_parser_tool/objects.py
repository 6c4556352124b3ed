"""A call written as a JSON object: {"name": ..., "arguments": {...}} and its relatives.

Owns how such an object is read while it arrives. Knows nothing of what stands around it.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass

from turret.parsing import Reading, Source
from turret_parser_tool.calls import Calls
from turret_parser_tool.json_text import json_string, json_value

__all__ = ["ObjectShape", "Outcome", "read_arguments", "read_call", "read_named", "take_text"]


class Outcome(enum.Enum):
    """How reading a call went."""

    DONE = enum.auto()
    CUT = enum.auto()  # it was begun and stops short
    BROKEN = enum.auto()  # it is none; nothing was told


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """Keys of a call. With `known_only` a name that is no tool of the request, or any other key, makes it no call."""

    name_keys: tuple[str, ...] = ("name",)
    args_keys: tuple[str, ...] = ("arguments", "parameters", "args")
    id_keys: tuple[str, ...] = ("id", "tool_call_id")
    known_only: bool = False


class _Call:
    """What is known of one call while its object is read."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.call_id: str | None = None
        self.arguments: str | None = None  # read before they could be told
        self.told = False  # the arguments were told whole
        self.depth = 0  # of a "function" object around the keys


def read_call(source: Source, calls: Calls, shape: ObjectShape) -> Reading[Outcome]:
    """Read one object; its arguments are told as they arrive, once the name is known."""
    if not (yield from source.is_next("{")):
        return Outcome.BROKEN
    call = _Call()
    while True:
        yield from source.space()
        ahead = yield from source.peek(1)
        if ahead == "}":
            source.take(1)
            call.depth -= 1
            if call.depth < 0:
                break
        elif ahead == ",":
            source.take(1)
        else:
            outcome = yield from _member(source, calls, shape, call)
            if outcome is Outcome.CUT:
                calls.cut()
                return outcome
            if outcome is Outcome.BROKEN and not call.told:
                return outcome
            if outcome is Outcome.BROKEN:
                break  # the arguments are whole: a brace too few does no harm
    if call.name is None:
        return Outcome.BROKEN
    if not call.told:
        calls.start(call.name, call.call_id)
        calls.arguments(call.arguments or "")
    calls.end()
    return Outcome.DONE


def _member(source: Source, calls: Calls, shape: ObjectShape, call: _Call) -> Reading[Outcome]:
    key = yield from take_text(source)
    if key is None:
        return Outcome.BROKEN
    yield from source.space()
    if not (yield from source.is_next(":")):
        return Outcome.BROKEN
    yield from source.space()
    ahead = yield from source.peek(1)
    if key in shape.name_keys and call.name is None:
        call.name = yield from take_text(source)
        fits = bool(call.name) and (not shape.known_only or calls.known(call.name or ""))
        return Outcome.DONE if fits else Outcome.BROKEN
    if key in shape.args_keys and call.arguments is None and not call.told:
        if call.name is not None and ahead == "{":
            source.release()
            calls.start(call.name, call.call_id)
            call.told = yield from json_value(source, calls.arguments)
            return Outcome.DONE if call.told else Outcome.CUT
        call.arguments = yield from read_arguments(source)
        return Outcome.BROKEN if call.arguments is None else Outcome.DONE
    if key == "function" and ahead == "{":
        source.take(1)
        call.depth += 1
        return Outcome.DONE
    if shape.known_only and key not in (*shape.id_keys, "type"):
        return Outcome.BROKEN
    value: list[str] = []
    if not (yield from json_value(source, value.append)):
        return Outcome.BROKEN
    if key in shape.id_keys and value[0].startswith('"'):
        call.call_id = json.loads("".join(value)) or None
    return Outcome.DONE


def read_arguments(source: Source) -> Reading[str | None]:
    """Whole arguments as JSON text: an object, an object written into a string, or null for none."""
    parts: list[str] = []
    if not (yield from json_value(source, parts.append)):
        return None
    text = "".join(parts)
    if text == "null":
        return "{}"
    if text.startswith('"'):
        inner = json.loads(text)
        return inner if _is_object(inner) else text
    return text


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def take_text(source: Source) -> Reading[str | None]:
    """The value of a JSON string that stands here; None if there is none."""
    if (yield from source.peek(1)) != '"':
        return None
    parts: list[str] = []
    if not (yield from json_string(source, parts.append)):
        return None
    text: str = json.loads("".join(parts))
    return text


def read_named(source: Source, calls: Calls) -> Reading[Outcome]:
    """Read an object whose keys are tools and whose values are their arguments."""
    if not (yield from source.is_next("{")):
        return Outcome.BROKEN
    done = Outcome.BROKEN
    while True:
        yield from source.space()
        ahead = yield from source.peek(1)
        if ahead in ("}", ","):
            source.take(1)
            if ahead == "}":
                return done
            continue
        name = yield from take_text(source)
        yield from source.space()
        if not name or not (yield from source.is_next(":")):
            return done
        yield from source.space()
        if (yield from source.peek(1)) != "{":
            return done
        source.release()
        calls.start(name)
        if not (yield from json_value(source, calls.arguments)):
            calls.cut()
            return Outcome.CUT
        calls.end()
        done = Outcome.DONE
