"""Calls as tags with one tag to a parameter, whose value is raw text.

Owns the grammar `Parameters` (F4 in the field's families: <function=NAME><parameter=KEY>VALUE</parameter></function>).
This is not XML: a value has no entities and may hold any other tag; only its own closer ends it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from turret.parsing import Marks, Reading, Source, Write
from turret_parser_tool.calls import Calls
from turret_parser_tool.grammar import Around, is_name
from turret_parser_tool.json_text import json_value
from turret_parser_tool.typed import ArgumentWriter

__all__ = ["Parameters", "tag_header"]

ATTRIBUTE = re.compile(r"""([\w\-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
NAMES = ("name", "tool", "key")
CDATA, CDATA_END = "<![CDATA[", "]]>"


@dataclass(frozen=True, slots=True)
class Parameters:
    """Tags are given up to where their name or attributes begin: `<function=`, `<invoke`.

    The closers of a call and a section also end a value whose own closer is missing, where they begin a line. `typed`
    names the attribute that says whether a value is text or JSON. `free` are the calls that need no section around
    them, all of them if it is None.
    """

    section: tuple[str, ...]
    section_end: tuple[str, ...]
    call: tuple[str, ...]
    call_end: tuple[str, ...]
    parameter: tuple[str, ...]
    parameter_end: tuple[str, ...]
    typed: str = ""
    cdata: bool = False
    tag_end: str = ">"
    free: tuple[str, ...] | None = None
    around: Around = field(default_factory=Around)

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        tags = (*self.section, *self.section_end, *self.call, *self.call_end, *self.parameter, *self.parameter_end)
        return (*tags, *self.around.marks())

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        openers = Marks((*self.section, *(self.call if self.free is None else self.free)))
        while True:
            mark = yield from self.around.to_call(source, calls, openers)
            if mark is None:
                return
            if mark in self.section:
                yield from self._section(source, calls, mark)
            else:
                source.keep()
                yield from self._call(source, calls, mark)
                calls.border()

    def _section(self, source: Source, calls: Calls, mark: str) -> Reading[None]:
        before, opener = calls.count, mark
        while True:
            source.keep()
            space = yield from source.space()
            again = yield from source.one_of(Marks(self.section))
            if again is not None:
                opener = again
                continue
            tag = yield from source.one_of(Marks((*self.call, *self.section_end)))
            if tag is None or tag in self.section_end:
                source.release()
                unread = (opener if calls.count == before else "") + space
                if tag is None or calls.count == before:
                    calls.content(unread + (tag or ""))
                return
            if not (yield from self._call(source, calls, (opener if calls.count == before else "") + space + tag)):
                return

    def _call(self, source: Source, calls: Calls, raw: str) -> Reading[bool]:
        """A call whose opener was consumed; `raw` is what becomes content if it is none. False if it stops short."""
        source.keep()
        header, end = yield from source.text_to(Marks((self.tag_end,)))
        name, _ = tag_header(header)
        if end is None or not is_name(name):
            calls.content(raw + source.since_kept())
            return False
        source.release()
        calls.start(name)
        yield from source.space()
        if (yield from source.peek(1)) == "{":
            if not (yield from json_value(source, calls.arguments)):
                calls.cut()
                return False
            yield from source.space()
            yield from source.one_of(Marks(self.call_end))
            calls.end()
            return True
        return (yield from self._parameters(source, calls, name))

    def _parameters(self, source: Source, calls: Calls, name: str) -> Reading[bool]:
        writer = ArgumentWriter(calls, name)
        ends = (*self.call_end, *self.call, *self.section_end, *self.section)
        while True:
            yield from source.space()
            tag = yield from source.one_of(Marks((*self.parameter, *ends, *self.parameter_end)))
            if tag is None:
                if not (yield from source.peek(1)):
                    calls.cut()
                    return False
                source.take(1)  # text between parameters means nothing
            elif tag in ends:
                if tag not in self.call_end:
                    source.back(len(tag))
                writer.close()
                calls.end()
                return True
            elif tag in self.parameter and not (yield from self._parameter(source, writer)):
                calls.cut()
                return False

    def _parameter(self, source: Source, writer: ArgumentWriter) -> Reading[bool]:
        header, end = yield from source.text_to(Marks((self.tag_end,)))
        if end is None:
            return False
        key, attributes = tag_header(header)
        flag = attributes.get(self.typed) if self.typed else None
        value = writer.value(key, None if flag is None else flag.lower() in ("true", "string"))
        whole = yield from self._value(source, value.add)
        if whole:
            value.close()
        return whole

    def _value(self, source: Source, write: Write) -> Reading[bool]:
        """The text of a value, one line end at each side stripped; False if the answer ends in it."""
        yield from _line_end(source)
        if self.cdata and (yield from source.is_next(CDATA)):
            if (yield from source.flow(Marks((CDATA_END,)), write, inside=True)) is None:
                return False
            yield from source.space()
            yield from source.one_of(Marks(self.parameter_end))
            return True
        others = (*self.parameter, *self.call_end, *self.section_end)
        marks = (*self.parameter_end, *(f"\n{tag}" for tag in (*self.parameter_end, *others)))
        mark = yield from source.flow(Marks(marks), write, inside=True)
        if mark is None:
            return False
        if mark.removeprefix("\n") not in self.parameter_end:
            source.back(len(mark) - 1)
        return True


def _line_end(source: Source) -> Reading[None]:
    if (yield from source.peek(1)) == "\r":
        yield from source.is_next("\r\n")
    else:
        yield from source.is_next("\n")


def tag_header(text: str) -> tuple[str, dict[str, str]]:
    """Name and attributes of a tag: `NAME`, `name="NAME" string="true"`, `tool="NAME"`, `key="NAME"`."""
    found = {m[1]: m[2] or m[3] or m[4] or "" for m in ATTRIBUTE.finditer(text)}
    attributes = {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in found.items()}
    named = next((attributes[key] for key in NAMES if key in attributes), None)
    return (text.strip().strip("\"'") if named is None else named), attributes
