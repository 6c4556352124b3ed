"""Calls as JSON objects between tags, or bare; and as a JSON list.

Owns these two grammars: one object to a call (`Tagged`), a list of them (`Listed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from turret.parsing import Marks, Reading, Source
from turret_parser_tool.calls import Calls
from turret_parser_tool.grammar import Around
from turret_parser_tool.objects import ObjectShape, Outcome, read_call, read_named

__all__ = ["Listed", "Tagged"]


@dataclass(frozen=True, slots=True)
class Tagged:
    """Objects after an opener. A closer may be missing; a second opener before an object starts over.

    With `bare` an answer may begin with an object and no tag. `separators` stand between objects.
    """

    openers: tuple[str, ...]
    closers: tuple[str, ...] = ()
    separators: tuple[str, ...] = ()
    shape: ObjectShape = field(default_factory=ObjectShape)
    bare: bool = False
    around: Around = field(default_factory=Around)

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        return (*self.openers, *self.closers, *self.around.marks())

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        openers = Marks(self.openers)
        if self.bare:
            yield from self._objects(source, calls, "", openers)
        while True:
            mark = yield from self.around.to_call(source, calls, openers)
            if mark is None:
                return
            yield from self._objects(source, calls, mark, openers)

    def _objects(self, source: Source, calls: Calls, mark: str, openers: Marks) -> Reading[None]:
        after = Marks((*self.openers, *self.closers, *self.separators))
        while True:
            source.keep()
            yield from source.space()
            again = yield from source.one_of(openers)
            if again is not None:
                mark = again
                continue
            outcome = yield from read_call(source, calls, self.shape)
            if outcome is Outcome.BROKEN:
                calls.content(mark + source.since_kept())
                return
            source.release()
            if outcome is Outcome.CUT:
                return
            between = yield from source.space()
            while (yield from source.is_next("}")):  # a brace too many
                between = yield from source.space()
            found = yield from source.one_of(after)
            if found in self.closers or (found is None and (yield from source.peek(1)) != "{"):
                calls.content("" if found else between)
                return
            mark = found or ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of objects after an opener. With `named` an item is {TOOL: arguments}; `bare` as for `Tagged`."""

    openers: tuple[str, ...]
    closers: tuple[str, ...] = ()
    shape: ObjectShape = field(default_factory=ObjectShape)
    bare: bool = False
    named: bool = False
    around: Around = field(default_factory=Around)

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        return (*self.openers, *self.closers, *self.around.marks())

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        openers = Marks(self.openers)
        if self.bare:
            yield from self.list_at(source, calls, "")
        while True:
            mark = yield from self.around.to_call(source, calls, openers)
            if mark is None:
                return
            yield from self.list_at(source, calls, mark)

    def list_at(self, source: Source, calls: Calls, mark: str) -> Reading[None]:
        """Read the list that should stand after `mark`; what is none is content."""
        source.keep()
        yield from source.space()
        while (again := (yield from source.one_of(Marks(self.openers)))) is not None:
            mark = again
            source.keep()
            yield from source.space()
        if not (yield from source.is_next("[")):
            calls.content(mark + source.since_kept())
            return
        if not (yield from self._items(source, calls, mark)):
            return
        between = yield from source.space()
        found = yield from source.one_of(Marks(self.closers))
        calls.content("" if found else between)

    def _items(self, source: Source, calls: Calls, mark: str) -> Reading[bool]:
        """Items up to the end of the list; False if it stops short of it."""
        before = calls.count
        while True:
            yield from source.space()
            ahead = yield from source.peek(1)
            if ahead in ("]", ","):
                source.take(1)
                if ahead == ",":
                    continue
                if calls.count == before and (self.shape.known_only or not mark):
                    calls.content(mark + source.since_kept())  # an empty list that nothing announced is an answer
                    return False
                source.release()
                return True
            read = read_named(source, calls) if self.named else read_call(source, calls, self.shape)
            outcome = yield from read
            if outcome is Outcome.BROKEN:
                calls.content((mark if calls.count == before else "") + source.since_kept())
            if outcome is not Outcome.DONE:
                return False
            mark = ""
            source.keep()
