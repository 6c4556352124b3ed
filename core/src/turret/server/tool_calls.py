"""Tool calls of an answer: from a parser's events to the objects that clients read.

Owns: ids, numbers and completeness of calls. Knows nothing of chunks and of no model's way to write calls.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from turret.contracts import (
    ContentDelta,
    ParserContext,
    ParserEvent,
    ParserSession,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from turret.errors import PluginError
from turret.server.state import ServerState
from turret.server.wire import ChatRequest

__all__ = ["ToolReader", "tool_readers"]


class ToolReader:
    """Reads one choice. `content` and `calls` are what it found so far.

    With `single` every call but the first is dropped.
    """

    def __init__(self, session: ParserSession, name: str, single: bool) -> None:
        self.content = ""
        self.calls: list[dict[str, Any]] = []
        self._session = session
        self._name = name
        self._single = single
        self._places: dict[int, int | None] = {}  # the parser's number of a call to its place, None if dropped

    def read(self, text: str, ids: Sequence[int], last: bool) -> list[dict[str, Any]]:
        """Members of a streamed delta, each for a chunk of its own; `last` flushes what the parser holds back.

        One call to a chunk, since clients may look at the first entry of `tool_calls` only.
        """
        events = self._session.feed(text, ids)
        if last:
            events = [*events, *self._session.finish()]
        return [member for event in events if (member := self._take(event)) is not None]

    def _take(self, event: ParserEvent) -> dict[str, Any] | None:
        if isinstance(event, ContentDelta):
            self.content += event.text
            return {"content": event.text} if event.text else None
        if isinstance(event, ToolCallStart):
            return self._begin(event)
        if isinstance(event, ToolArgumentsDelta | ToolCallEnd):
            if event.index not in self._places:
                raise self._broken(f"went on with call {event.index}, which it had not begun")
            return self._more(event) if isinstance(event, ToolArgumentsDelta) else None
        raise self._broken(f"emitted a {type(event).__name__}, which is no event of a tool parser")

    def _begin(self, event: ToolCallStart) -> dict[str, Any] | None:
        if event.index in self._places:
            raise self._broken(f"began call {event.index} twice")
        if self._single and self.calls:
            self._places[event.index] = None
            return None
        place = self._places[event.index] = len(self.calls)
        call_id = event.call_id or f"chatcmpl-tool-{uuid.uuid4().hex}"
        function = {"name": event.name, "arguments": ""}
        head = {"id": call_id, "type": "function"}
        self.calls.append({**head, "function": dict(function)})
        return {"tool_calls": [{"index": place, **head, "function": function}]}

    def _more(self, event: ToolArgumentsDelta) -> dict[str, Any] | None:
        place = self._places[event.index]
        if place is None or not event.text:
            return None
        self.calls[place]["function"]["arguments"] += event.text
        return {"tool_calls": [{"index": place, "function": {"arguments": event.text}}]}

    def _broken(self, what: str) -> PluginError:
        sentence = f"tool_parser:{self._name} {what}; report it to its authors, or choose another --tool-call-parser"
        return PluginError(sentence, plugin=f"tool_parser:{self._name}", stage="feed")


def tool_readers(state: ServerState, body: ChatRequest, count: int) -> list[ToolReader]:
    """A reader for each of `count` choices, on sessions of their own; raises `PluginError`."""
    parser = state.parts.tool_parser
    assert parser is not None, "check_tools lets nobody here without a parser"
    context = ParserContext(tuple(body.tools or ()), tuple((body.chat_template_kwargs or {}).items()))
    name, single = state.config.server.tool_call_parser or "", body.parallel_tool_calls is False
    return [ToolReader(parser.open(context), name, single) for _ in range(count)]
