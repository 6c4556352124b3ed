"""The events of one answer: content, and calls one after the other.

Owns numbering, the arguments of a call that has none, and which white space is content. Knows no format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turret.contracts import (
    ContentDelta,
    ParserContext,
    ParserEvent,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)

__all__ = ["Calls", "tool_schemas"]


def tool_schemas(context: ParserContext) -> dict[str, Mapping[str, Any]]:
    """Name → JSON Schema of the parameters, of each tool that has a name."""
    found: dict[str, Mapping[str, Any]] = {}
    for tool in context.tools:
        function = tool.get("function", tool)
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            parameters = function.get("parameters")
            found[function["name"]] = parameters if isinstance(parameters, Mapping) else {}
    return found


class Calls:
    """Gathers events. Calls do not nest: one is begun, its arguments grow, it ends.

    White space at the start of an answer, or directly after a call, belongs to the markup: it is content only if other
    text follows it (or if the answer holds no call at all).
    """

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self.schemas = schemas
        self.new_id: Callable[[], str] | None = None  # for formats whose ids have a shape of their own
        self._events: list[ParserEvent] = []
        self._count = 0
        self._open = False
        self._argued = False
        self._space: str | None = ""  # None once text was told

    def drain(self) -> list[ParserEvent]:
        """The events since last asked."""
        events, self._events = self._events, []
        return events

    def content(self, text: str) -> None:
        """Text of the answer."""
        if self._space is not None:
            text = self._space + text
            if not text.strip():
                self._space = text
                return
            self._space = None
        if text:
            self._events.append(ContentDelta(text))

    def border(self) -> None:
        """Markup was consumed: white space that follows belongs to it, unless text follows that."""
        self._space = self._space or ""

    def reasoning(self, text: str) -> None:
        """Text of reasoning, in formats that mark it themselves."""
        if text:
            self._events.append(ReasoningDelta(text))

    def start(self, name: str, call_id: str | None = None) -> None:
        """A call begins."""
        if call_id is None and self.new_id is not None:
            call_id = self.new_id()
        self._events.append(ToolCallStart(self._count, name, call_id))
        self._open, self._argued = True, False
        self._space = None

    def arguments(self, text: str) -> None:
        """More JSON text of the open call's arguments."""
        if text:
            self._argued = True
            self._events.append(ToolArgumentsDelta(self._count, text))

    def end(self) -> None:
        """The open call is complete; without arguments they are an empty object."""
        if not self._argued:
            self.arguments("{}")
        self._events.append(ToolCallEnd(self._count))
        self._close()

    def cut(self) -> None:
        """The open call ends before it was complete: what was told stands, nothing is made up."""
        self._close()

    def call(self, name: str, arguments: str, call_id: str | None = None) -> None:
        """A whole call."""
        self.start(name, call_id)
        self.arguments(arguments)
        self.end()

    def finish(self) -> None:
        """The answer has ended."""
        if self._space and not self._count:
            self._events.append(ContentDelta(self._space))
        self._space = None

    @property
    def count(self) -> int:
        """Calls so far."""
        return self._count

    def known(self, name: str) -> bool:
        """Whether the request has such a tool."""
        return name in self.schemas

    def properties(self, name: str) -> Sequence[str]:
        """Parameter names in the order of the schema."""
        properties = self.schemas.get(name, {}).get("properties")
        return list(properties) if isinstance(properties, Mapping) else []

    def _close(self) -> None:
        if self._open:
            self._count += 1
        self._open = False
        self._space = ""
