"""Calls as a header that names the tool, then the arguments as JSON.

Owns the grammar `Headed`, and how the headers of its variants are taken apart.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turret.parsing import Marks, Reading, Source
from turret_parser_tool.calls import Calls
from turret_parser_tool.grammar import Around, is_name
from turret_parser_tool.json_text import json_value
from turret_parser_tool.objects import ObjectShape, Outcome, read_call
from turret_parser_tool.tagged import Listed

__all__ = ["Headed", "MistralCalls", "kimi_header", "plain_header", "solar_header"]

Header = tuple[str, str | None]
SplitHeader = Callable[[str], Header | None]

KIMI = re.compile(r"(?:functions\.)?(?P<name>.+):\d+\Z", re.DOTALL)
FENCE = Marks(("```json", "```"))


def plain_header(header: str) -> Header | None:
    """The header is the name."""
    name = header.strip()
    return (name, None) if is_name(name) else None


def kimi_header(header: str) -> Header | None:
    """`functions.NAME:INDEX` is the id as a whole; a name may have dots. Empty name: it stands in the JSON."""
    text = header.strip()
    match = KIMI.match(text)
    if match is not None and is_name(match["name"]):
        return match["name"], text
    if text.startswith("call_") and is_name(text):
        return "", text
    return plain_header(text.removeprefix("functions."))


def solar_header(header: str) -> Header | None:
    """An id of the model's own, <|tool_call:name|>, the name."""
    call_id, _, name = header.rpartition("<|tool_call:name|>")
    return (name.strip(), call_id.strip() or None) if is_name(name.strip()) else None


@dataclass(frozen=True, slots=True)
class Headed:
    """An opener, the header up to one of `name_ends`, JSON (perhaps in a code fence), a closer that may be missing."""

    openers: tuple[str, ...]
    name_ends: tuple[str, ...]
    closers: tuple[str, ...] = ()
    split: SplitHeader = plain_header
    around: Around = field(default_factory=Around)

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        return (*self.openers, *self.name_ends, *self.closers, *self.around.marks())

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        openers = Marks(self.openers)
        while True:
            mark = yield from self.around.to_call(source, calls, openers)
            if mark is None:
                return
            yield from self._call(source, calls, mark)

    def _call(self, source: Source, calls: Calls, mark: str) -> Reading[None]:
        source.keep()
        header, end = yield from source.text_to(Marks((*self.name_ends, *self.closers, *self.openers)))
        split = self.split(header) if end is not None else None
        if split is None or end in self.openers:
            if end in self.openers:
                source.back(len(end or ""))
            calls.content(mark + source.since_kept())
            return
        name, call_id = split
        if end in self.closers:
            source.release()
            if name:
                calls.call(name, "{}", call_id)
            return
        yield from source.space()
        if (yield from source.one_of(FENCE)) is not None:
            yield from source.space()
        if not name:
            yield from self._nameless(source, calls, mark)
            return
        yield from self._arguments(source, calls, (name, call_id))

    def _nameless(self, source: Source, calls: Calls, mark: str) -> Reading[None]:
        outcome = yield from read_call(source, calls, ObjectShape())
        if outcome is Outcome.BROKEN:
            calls.content(mark + source.since_kept())
            return
        source.release()
        yield from self._close(source)

    def _arguments(self, source: Source, calls: Calls, header: Header) -> Reading[None]:
        source.release()
        calls.start(*header)
        if (yield from source.peek(1)) == "{":
            whole = yield from json_value(source, calls.arguments)
        else:
            whole = (yield from source.one_of(Marks(self.closers))) is not None  # none, and something says so
        if not whole:
            calls.cut()
            return
        calls.end()
        yield from self._close(source)

    def _close(self, source: Source) -> Reading[None]:
        yield from source.space()
        if (yield from source.is_next("```")):
            yield from source.space()
        yield from source.one_of(Marks(self.closers))


ID_LETTERS = string.ascii_letters + string.digits


def _mistral_id() -> str:
    return "".join(secrets.choice(ID_LETTERS) for _ in range(9))


@dataclass(frozen=True, slots=True)
class MistralCalls:
    """`[TOOL_CALLS]`, then a list (older tokenizers) or NAME{...}, with [CALL_ID] and [ARGS] between or not."""

    around: Around = field(default_factory=lambda: Around(drop=("</s>",)))

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        return ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", *self.around.marks())

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        calls.new_id = _mistral_id
        openers, after = Marks(("[TOOL_CALLS]",)), Listed(("[TOOL_CALLS]",))
        while True:
            mark = yield from self.around.to_call(source, calls, openers)
            if mark is None:
                return
            source.keep()
            yield from source.space()
            ahead = yield from source.peek(1)
            source.back(len(source.since_kept()))
            if ahead == "[":
                yield from after.list_at(source, calls, mark)
            else:
                yield from self._call(source, calls, mark)

    def _call(self, source: Source, calls: Calls, mark: str) -> Reading[None]:
        source.keep()
        name, end = yield from source.text_to(Marks(("{", "[ARGS]", "[CALL_ID]", "[TOOL_CALLS]")))
        call_id: str | None = None
        if end == "[CALL_ID]":
            call_id, end = yield from source.text_to(Marks(("{", "[ARGS]", "[TOOL_CALLS]")))
        if end in ("{", "[TOOL_CALLS]"):
            source.back(len(end))
        yield from source.space()
        if end in (None, "[TOOL_CALLS]") or not is_name(name.strip()) or (yield from source.peek(1)) != "{":
            calls.content(mark + source.since_kept())
            return
        source.release()
        calls.start(name.strip(), (call_id or "").strip() or None)
        if (yield from json_value(source, calls.arguments)):
            calls.end()
        else:
            calls.cut()
