"""Contracts `tool_parser` and `reasoning_parser`: from model text to tool calls and reasoning.

Owns: the Protocols and their events. No HTTP types. Version 1.2.

1.1: a parser may have `special_tokens`, a sequence of strings: special tokens among them reach it even where the client
asked to skip special tokens. A tool parser may emit `ReasoningDelta`, in formats that mark reasoning themselves.

1.2: a reasoning parser may have `thinking(ctx)`, which says between which marks reasoning stands, so that a budget for
it can be kept; None where it cannot say.

The result must not depend on how the stream was cut, and nothing emitted is ever taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

__all__ = [
    "ContentDelta",
    "ParserContext",
    "ParserEvent",
    "ParserSession",
    "ReasoningDelta",
    "ReasoningParser",
    "ThinkingMarks",
    "ToolArgumentsDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolParser",
]


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Text of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """Call number `index` begins; its name is known and final."""

    index: int
    name: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolArgumentsDelta:
    """More of the JSON text of the arguments; all deltas of a call concatenate to valid JSON."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """The call is complete."""

    index: int


ParserEvent = ContentDelta | ReasoningDelta | ToolCallStart | ToolArgumentsDelta | ToolCallEnd


@dataclass(frozen=True, slots=True)
class ParserContext:
    """What a session may know: the request's tools (JSON schema objects) and chat template arguments."""

    tools: Sequence[dict[str, Any]] = ()
    template_kwargs: tuple[tuple[str, Any], ...] = ()
    prompt_tail: str = ""


@dataclass(frozen=True, slots=True)
class ThinkingMarks:
    """Where reasoning begins and ends in one answer, as text.

    It has `begun` with the answer, or begins after one of `starts`; it ends at one of `ends`, or of `ends_too`, which
    belong to what follows. `force` is what to write to end it and go on with the answer. With `again` it may come back.
    """

    force: str
    ends: tuple[str, ...]
    starts: tuple[str, ...] = ()
    ends_too: tuple[str, ...] = ()
    begun: bool = False
    again: bool = False


@runtime_checkable
class ParserSession(Protocol):
    """One answer being parsed."""

    def feed(self, text: str, ids: Sequence[int]) -> list[ParserEvent]:
        """Consume more text (and the token ids it came from)."""

    def finish(self) -> list[ParserEvent]:
        """The stream ended; flush."""


@runtime_checkable
class ToolParser(Protocol):
    """Reads tool calls."""

    api: str
    kind: str

    def open(self, ctx: ParserContext) -> ParserSession:
        """A session for one answer."""

    def grammar(self, tools: Sequence[dict[str, Any]]) -> Any | None:
        """A grammar that forces a call, or None."""


@runtime_checkable
class ReasoningParser(Protocol):
    """Separates reasoning from the answer."""

    api: str
    kind: str

    def open(self, ctx: ParserContext) -> ParserSession:
        """A session for one answer."""
