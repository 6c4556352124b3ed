"""Calls in a notation like JSON's with bare keys and strings between marks: call:NAME{city:<|"|>Oslo<|"|>,days:2}.

Owns the grammar `Braces`. What a value is, the notation says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from turret.parsing import Marks, Reading, Source, Write
from turret_parser_tool.calls import Calls
from turret_parser_tool.grammar import Around, is_name
from turret_parser_tool.json_text import json_value, quoted

__all__ = ["Braces"]

BARE = re.compile(r"[^,\[\]{}]*")
KEY = Marks((":", "}", ","))
CLOSERS = {"{": "}", "[": "]"}
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z")


@dataclass(frozen=True, slots=True)
class Braces:
    """An opener, `call:NAME`, the braces, a closer that may be missing. `quote` stands on both sides of a string."""

    opener: str
    closer: str
    quote: str
    around: Around = field(default_factory=Around)

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        return (self.opener, self.closer, self.quote, *self.around.marks())

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        while True:
            mark = yield from self.around.to_call(source, calls, Marks((self.opener,)))
            if mark is None:
                return
            yield from self._call(source, calls)

    def _call(self, source: Source, calls: Calls) -> Reading[None]:
        source.keep()
        yield from source.space()
        named = yield from source.is_next("call:")
        header, end = yield from source.text_to(Marks(("{", self.closer, self.opener)))
        name = header.strip()
        if not named or end is None or end == self.opener or not is_name(name):
            if end == self.opener:
                source.back(len(end))
            raw = source.since_kept()
            if end != self.opener or header.strip():  # of two openers in a row the newer counts
                calls.content(self.opener + raw)
            return
        source.release()
        calls.start(name)
        whole = end == self.closer
        if not whole:
            source.back(1)
            whole = yield from self._value(source, calls.arguments)
            yield from source.space()
            yield from source.is_next(self.closer)
        if whole:
            calls.end()
        else:
            calls.cut()

    def _value(self, source: Source, write: Write) -> Reading[bool]:
        """Tell one value as JSON; False if it is cut short."""
        stack: list[str] = []
        comma = False  # a value was told at this level
        while True:
            yield from source.space()
            ahead = yield from source.peek(1)
            if not ahead:
                return False
            if stack and ahead == stack[-1]:
                write(source.take(1))
                stack.pop()
                comma = True
            elif ahead == "," and stack:
                source.take(1)
                continue
            else:
                lead = ", " if comma and stack else ""
                if stack and stack[-1] == "}":
                    key = yield from self._key(source)
                    if key is None:
                        return False
                    lead += f"{json.dumps(key, ensure_ascii=False)}: "
                    ahead = yield from source.peek(1)
                if ahead in CLOSERS and ahead:
                    write(lead + source.take(1))
                    stack.append(CLOSERS[ahead])
                    comma = False
                    continue
                if not (yield from self._scalar(source, lead, write)):
                    return False
                comma = True
            if not stack:
                return True

    def _key(self, source: Source) -> Reading[str | None]:
        if (yield from source.is_next(self.quote)):
            key, end = yield from source.text_to(Marks((self.quote,)))
            yield from source.space()
            end = end and ((yield from source.is_next(":")) or None) and ":"
        else:
            key, end = yield from source.text_to(KEY)
        yield from source.space()
        return key.strip() if end == ":" else None

    def _scalar(self, source: Source, lead: str, write: Write) -> Reading[bool]:
        if (yield from source.is_next(self.quote)):
            write(lead + '"')
            if (yield from source.flow(Marks((self.quote,)), lambda text: write(quoted(text)), inside=True)) is None:
                return False
            write('"')
            return True
        if (yield from source.peek(1)) == '"':
            write(lead)
            return (yield from json_value(source, write))
        parts: list[str] = []
        yield from source.run(BARE, parts.append)
        if not (yield from source.peek(1)):
            return False
        word = "".join(parts).strip()
        write(
            lead
            + (
                word
                if word in ("true", "false", "null") or NUMBER.match(word)
                else json.dumps(word, ensure_ascii=False)
            )
        )
        return True
