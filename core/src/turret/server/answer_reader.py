"""What an answer holds beside its text: reasoning and tool calls, from parsers' events to what clients read.

Owns: the order of parsers, ids, numbers and completeness of calls, and how much was reasoning. Knows nothing of chunks
and of no model's way to write.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turret.contracts import (
    ContentDelta,
    ParserContext,
    ParserEvent,
    ParserSession,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from turret.errors import PluginError
from turret.server.forced_calls import ForcedCalls, forced_name, forces_calls
from turret.server.state import ServerState
from turret.server.wire import ChatRequest

__all__ = ["AnswerReader", "answer_readers", "delta_member", "parser_context", "shown_tokens"]

TAIL = 1 << 16
"""Characters at the end of a prompt that a parser sees: enough for the message that an answer may continue."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """A parser's session, and its name for when it does not keep to its contract."""

    session: ParserSession
    name: str

    def read(self, text: str, ids: Sequence[int], last: bool) -> list[ParserEvent]:
        """Events of further text; at the `last` also what the parser holds back."""
        events = self.session.feed(text, ids)
        return [*events, *self.session.finish()] if last else events

    def broken(self, what: str) -> PluginError:
        """The error of a parser that did `what`."""
        option = "tool-call-parser" if self.name.startswith("tool_parser") else "reasoning-parser"
        sentence = f"{self.name} {what}; report it to its authors, or choose another --{option}"
        return PluginError(sentence, plugin=self.name, stage="feed")


class AnswerReader:
    """Reads one choice. `content`, `reasoning` and `calls` are what it found so far.

    Reasoning is split off first; what is not reasoning may hold calls. With `single` every call but the first is
    dropped.
    """

    def __init__(self, reasoning: _Stage | None, tools: _Stage | None, single: bool) -> None:
        self.content = ""
        self.reasoning = ""
        self.calls: list[dict[str, Any]] = []
        self.num_reasoning_tokens = 0
        self._reasoning = reasoning
        self._tools = tools
        self._single = single
        self._places: dict[int, int | None] = {}  # the parser's number of a call to its place, None if dropped

    def read(self, text: str, ids: Sequence[int], last: bool) -> list[ParserEvent]:
        """What further text holds; `last` flushes what the parsers hold back.

        Calls are numbered from 0 without a gap and have ids; no event is empty.
        """
        before = len(self.reasoning)
        found: list[ParserEvent] = []
        rest = text if self._reasoning is None else self._split(self._reasoning.read(text, ids, last), found)
        if self._tools is not None:
            taken = (self._take(event, self._tools) for event in self._tools.read(rest, ids, last))
            found += [event for event in taken if event is not None]
        elif rest:
            self.content += rest
            found.append(ContentDelta(rest))
        if len(self.reasoning) > before:
            self.num_reasoning_tokens += len(ids)
        return found

    def _split(self, events: Sequence[ParserEvent], found: list[ParserEvent]) -> str:
        """Tell the reasoning; the rest is for the tool parser, or content."""
        assert self._reasoning is not None
        rest = ""
        for event in events:
            if isinstance(event, ReasoningDelta):
                self.reasoning += event.text
                found.append(event)
            elif isinstance(event, ContentDelta):
                rest += event.text
            else:
                raise self._reasoning.broken(f"emitted a {type(event).__name__}, which is no event of its kind")
        return rest

    def _take(self, event: ParserEvent, stage: _Stage) -> ParserEvent | None:
        if isinstance(event, ContentDelta):
            self.content += event.text
            return event if event.text else None
        if isinstance(event, ReasoningDelta):
            self.reasoning += event.text
            return event if event.text else None
        if isinstance(event, ToolCallStart):
            if event.index in self._places:
                raise stage.broken(f"began call {event.index} twice")
            return self._begin(event)
        if isinstance(event, ToolArgumentsDelta | ToolCallEnd):
            if event.index not in self._places:
                raise stage.broken(f"went on with call {event.index}, which it had not begun")
            return self._more(event)
        raise stage.broken(f"emitted a {type(event).__name__}, which is no event of a tool parser")

    def _begin(self, event: ToolCallStart) -> ParserEvent | None:
        if self._single and self.calls:
            self._places[event.index] = None
            return None
        place = self._places[event.index] = len(self.calls)
        call_id = event.call_id or f"chatcmpl-tool-{uuid.uuid4().hex}"
        self.calls.append({"id": call_id, "type": "function", "function": {"name": event.name, "arguments": ""}})
        return ToolCallStart(place, event.name, call_id)

    def _more(self, event: ToolArgumentsDelta | ToolCallEnd) -> ParserEvent | None:
        place = self._places[event.index]
        if place is None:
            return None
        if isinstance(event, ToolCallEnd):
            return ToolCallEnd(place)
        if not event.text:
            return None
        self.calls[place]["function"]["arguments"] += event.text
        return ToolArgumentsDelta(place, event.text)


def delta_member(event: ParserEvent) -> dict[str, Any] | None:
    """An event as the delta of a streamed chunk; None if it shows in none.

    One call to a chunk, since clients may look at the first entry of `tool_calls` only.
    """
    if isinstance(event, ContentDelta):
        return {"content": event.text}
    if isinstance(event, ReasoningDelta):
        return {"reasoning": event.text}
    if isinstance(event, ToolCallStart):
        function = {"name": event.name, "arguments": ""}
        return {"tool_calls": [{"index": event.index, "id": event.call_id, "type": "function", "function": function}]}
    if isinstance(event, ToolArgumentsDelta):
        return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}
    return None


def parser_context(body: ChatRequest, prompt: str, calls_tools: bool) -> ParserContext:
    """What parsers may know of a request."""
    tools = tuple(body.tools or ()) if calls_tools else ()
    kwargs = dict(body.chat_template_kwargs or {})
    if body.reasoning_effort is not None:
        kwargs.setdefault("reasoning_effort", body.reasoning_effort)
    return ParserContext(tools, tuple(kwargs.items()), prompt[-TAIL:])


def answer_readers(
    state: ServerState, body: ChatRequest, prompt: str, count: int, calls_tools: bool
) -> list[AnswerReader] | None:
    """A reader for each of `count` choices, on sessions of their own; None if nothing is to be read out of the text.

    Raises `PluginError`.
    """
    parsers = state.parts.parsers
    if parsers.reasoning is None and not calls_tools:
        return None
    context = parser_context(body, prompt, calls_tools)
    single = body.parallel_tool_calls is False
    readers = []
    for _ in range(count):
        first = second = None
        if parsers.reasoning is not None:
            first = _Stage(parsers.reasoning.open(context), parsers.reasoning_name or "reasoning_parser")
        if calls_tools and forces_calls(body):
            second = _Stage(ForcedCalls(forced_name(body)), "tool_choice")
        elif calls_tools and parsers.tools is not None:
            second = _Stage(parsers.tools.open(context), parsers.tools_name or "tool_parser")
        readers.append(AnswerReader(first, second, single))
    return readers


def shown_tokens(state: ServerState, calls_tools: bool) -> frozenset[int]:
    """Special tokens that the parsers of an answer must see."""
    parsers = state.parts.parsers
    wanted = [*getattr(parsers.reasoning, "special_tokens", ())]
    if calls_tools:
        wanted += getattr(parsers.tools, "special_tokens", ())
    return state.text.special_ids(wanted) if wanted else frozenset()
