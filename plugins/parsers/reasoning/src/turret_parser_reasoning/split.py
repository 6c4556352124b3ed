"""The events of one answer: reasoning first, then content.

Owns how neighbouring text is told. Knows no format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from turret.contracts import ContentDelta, ParserContext, ParserEvent, ReasoningDelta, ThinkingMarks
from turret.parsing import Reading, Source

__all__ = ["Format", "Session", "Split"]


class Split:
    """Gathers events."""

    def __init__(self, context: ParserContext) -> None:
        self.context = context
        self._events: list[ParserEvent] = []

    def drain(self) -> list[ParserEvent]:
        """The events since last asked."""
        events, self._events = self._events, []
        return events

    def content(self, text: str) -> None:
        """Text of the answer."""
        if text:
            self._events.append(ContentDelta(text))

    def reasoning(self, text: str) -> None:
        """Text of the reasoning."""
        if text:
            self._events.append(ReasoningDelta(text))


class Format(Protocol):
    """How a family marks reasoning."""

    def read(self, source: Source, split: Split) -> Reading[None]:
        """Consume a whole answer."""

    def marks(self) -> Sequence[str]:
        """Strings that it looks for; those that are special tokens must not be skipped."""

    def thinking(self, context: ParserContext) -> ThinkingMarks | None:
        """Between which marks reasoning stands; None where nothing is split."""


class Session:
    """One answer (contract `ParserSession`)."""

    def __init__(self, format: Format, context: ParserContext) -> None:
        self._source = Source()
        self._split = Split(context)
        self._reading = format.read(self._source, self._split)
        self._done = False

    def feed(self, text: str, ids: Sequence[int]) -> list[ParserEvent]:
        """What is certain now that `text` arrived."""
        self._source.add(text)
        return self._resume()

    def finish(self) -> list[ParserEvent]:
        """What was held back."""
        self._source.ended = True
        return self._resume()

    def _resume(self) -> list[ParserEvent]:
        if not self._done:
            self._done = next(self._reading, self) is self
        return self._split.drain()
