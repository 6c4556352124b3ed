"""Calls as a name, then keys and values in tags: <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>.

Owns the grammars `Pairs`, and `Spellings` of it. Values are raw text, typed by the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from turret.parsing import Marks, Reading, Source
from turret_parser_tool.calls import Calls
from turret_parser_tool.grammar import Around, is_name
from turret_parser_tool.json_text import json_value
from turret_parser_tool.typed import ArgumentWriter, RawValue

__all__ = ["Pairs", "Spellings"]


@dataclass(frozen=True, slots=True)
class Pairs:
    """`key_end` may be the opener of the value itself. `name_end` may stand after the name; a line end always may.

    Text between `aside` tags, a value's type for instance, is skipped. With `or_json` arguments may be a JSON object.
    """

    call: str
    call_end: str
    key: str
    key_end: str
    value: str
    value_end: str
    name_end: tuple[str, ...] = ()
    aside: tuple[str, str] | None = None
    or_json: bool = False
    around: Around = field(default_factory=Around)

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        tags = (self.call, self.call_end, self.key, self.key_end, self.value, self.value_end, *self.name_end)
        return (*tags, *(self.aside or ()), *self.around.marks())

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        while True:
            mark = yield from self.around.to_call(source, calls, Marks((self.call,)))
            if mark is None:
                return
            yield from self._call(source, calls)

    def _call(self, source: Source, calls: Calls) -> Reading[None]:
        source.keep()
        yield from source.space()
        ends = ("\n", self.key, self.call_end, self.call, *self.name_end, *(("{",) if self.or_json else ()))
        text, end = yield from source.text_to(Marks(ends))
        name = text.strip()
        if end is None or end == self.call or not is_name(name):
            if end == self.call:
                source.back(len(end))
            raw = source.since_kept()
            if end != self.call or name:  # of two openers in a row the newer counts
                calls.content(self.call + raw)
            return
        source.release()
        calls.start(name)
        if end in (self.key, self.call_end, "{"):
            source.back(len(end))
        yield from source.space()
        if self.or_json and (yield from source.peek(1)) == "{":
            yield from self._object(source, calls)
        elif (yield from self._pairs(source, calls, ArgumentWriter(calls, name))):
            calls.end()
        else:
            calls.cut()

    def _object(self, source: Source, calls: Calls) -> Reading[None]:
        if not (yield from json_value(source, calls.arguments)):
            calls.cut()
            return
        calls.end()
        yield from source.space()
        yield from source.is_next(self.call_end)

    def _pairs(self, source: Source, calls: Calls, writer: ArgumentWriter) -> Reading[bool]:
        """All pairs up to the closer; False if the answer ends before it."""
        tags = Marks((self.key, self.call_end, self.call, self.value, self.value_end))
        while True:
            _, tag = yield from source.text_to(tags)
            if tag is None:
                return False
            if tag in (self.call_end, self.call):
                if tag == self.call:
                    source.back(len(tag))
                writer.close()
                return True
            if tag == self.key and not (yield from self._pair(source, writer)):
                return False

    def _pair(self, source: Source, writer: ArgumentWriter) -> Reading[bool]:
        stops = (self.key, self.call_end, self.call)
        key, tag = yield from source.text_to(Marks((self.key_end, *stops)))
        if tag == self.key_end and self.key_end != self.value:
            tag = yield from self._to_value(source, stops)
        if tag is None:
            return False
        if tag in stops:
            source.back(len(tag))  # a key without a value: the next key's value is not its
            return True
        value = writer.value(key.strip())
        if not (yield from self._value(source, value)):
            return False
        value.close()
        return True

    def _to_value(self, source: Source, stops: tuple[str, ...]) -> Reading[str | None]:
        """Up to the opener of the value; the tag that was met."""
        openers = (self.aside[0],) if self.aside else ()
        while True:
            _, tag = yield from source.text_to(Marks((self.value, *stops, *openers)))
            if self.aside is None or tag != self.aside[0]:
                return tag
            yield from source.text_to(Marks((self.aside[1],)))

    def _value(self, source: Source, value: RawValue) -> Reading[bool]:
        yield from source.is_next("\n")
        ends = (self.value_end, f"\n{self.value_end}", f"\n{self.call_end}", f"\n{self.key}")
        mark = yield from source.flow(Marks(ends), value.add, inside=True)
        if mark is None:
            return False
        if not mark.endswith(self.value_end):
            source.back(len(mark) - 1)
        return True


@dataclass(frozen=True, slots=True)
class Spellings:
    """The same grammar in several spellings of its tags; an answer keeps to the one that it begins with."""

    ways: tuple[Pairs, ...]

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        return tuple(mark for way in self.ways for mark in way.marks())

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        starts = {mark: way for way in self.ways for mark in (way.call, *way.around.marks())}
        mark = yield from source.flow(Marks(starts), calls.content)
        if mark is not None:
            source.back(len(mark))
            yield from starts[mark].read(source, calls)
