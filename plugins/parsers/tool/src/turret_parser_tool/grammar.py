"""What every grammar has: text around calls, marks that are not content, and a session that runs it.

Owns the walk from mark to mark. What stands at an opener is read by the grammar itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from turret.contracts import ParserContext, ParserEvent
from turret.parsing import Marks, Reading, Source
from turret_parser_tool.calls import Calls, tool_schemas

__all__ = ["Around", "Grammar", "Session", "is_name"]


class Grammar(Protocol):
    """Reads a whole answer."""

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Consume all of the source."""

    def marks(self) -> Sequence[str]:
        """Strings that the grammar looks for; those that are special tokens must not be skipped."""


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around calls. `drop` is markup that is no content; text inside an `opaque` pair holds no calls."""

    drop: tuple[str, ...] = ()
    opaque: tuple[tuple[str, str], ...] = ()

    def marks(self) -> tuple[str, ...]:
        """All its strings."""
        return (*self.drop, *(opener for opener, _ in self.opaque))

    def to_call(self, source: Source, calls: Calls, openers: Marks) -> Reading[str | None]:
        """Tell content up to the next opener, which is consumed and returned; None at the end."""
        marks = Marks((*openers.all, *self.marks()))
        closers = dict(self.opaque)
        while True:
            mark = yield from source.flow(marks, calls.content)
            if mark is None or mark in openers.all:
                return mark
            if mark in closers:
                calls.content(mark)
                closer = yield from source.flow(Marks((closers[mark],)), calls.content)
                calls.content(closer or "")
            else:
                calls.border()


class Session:
    """One answer (contract `ParserSession`)."""

    def __init__(self, grammar: Grammar, context: ParserContext) -> None:
        self._source = Source()
        self._calls = Calls(tool_schemas(context))
        self._reading = grammar.read(self._source, self._calls)
        self._done = False

    def feed(self, text: str, ids: Sequence[int]) -> list[ParserEvent]:
        """What is certain now that `text` arrived."""
        self._source.add(text)
        self._resume()
        return self._calls.drain()

    def finish(self) -> list[ParserEvent]:
        """What was held back."""
        self._source.ended = True
        self._resume()
        self._calls.finish()
        return self._calls.drain()

    def _resume(self) -> None:
        if not self._done:
            self._done = next(self._reading, self) is self


def is_name(text: str) -> bool:
    """Whether a header may name a tool."""
    return bool(text) and len(text) <= 256 and not any(c.isspace() or c in '<>{}"' for c in text)
