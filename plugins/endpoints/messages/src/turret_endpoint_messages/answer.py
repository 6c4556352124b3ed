"""From what an answer holds to a message of the Messages API, whole and streamed.

Owns: blocks, their order and numbers, and the events of a stream. Knows nothing of requests.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from turret.contracts import (
    ChatAnswer,
    ChatFinish,
    ContentDelta,
    ParserEvent,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallStart,
)

__all__ = ["message_of", "stream_of"]

encode = msgspec.json.encode

REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def _ending(finish: ChatFinish) -> dict[str, Any]:
    """`stop_reason` and `stop_sequence`."""
    if finish.reason == "stop" and isinstance(finish.stop, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": finish.stop}
    return {"stop_reason": REASONS.get(finish.reason, finish.reason), "stop_sequence": None}


def _usage(answer: ChatAnswer) -> dict[str, int]:
    """Counts: `input_tokens` are those that the prefix cache did not hold, as Anthropic counts."""
    usage = answer.usage()
    fresh = usage.prompt - usage.cached
    return {"input_tokens": fresh, "cache_read_input_tokens": usage.cached, "output_tokens": usage.output}


def _head(answer: ChatAnswer) -> dict[str, Any]:
    return {"id": answer.id, "type": "message", "role": "assistant", "model": answer.model}


class _Blocks:
    """Turns parts into blocks one after the other; text and thinking grow, a call is a block of its own."""

    def __init__(self) -> None:
        self.count = 0
        self.open: str | None = None

    def take(self, part: ParserEvent) -> list[tuple[str, dict[str, Any]]]:
        """Events for a part: (name, data)."""
        if isinstance(part, ContentDelta):
            return self._grow("text", {"type": "text", "text": ""}, {"type": "text_delta", "text": part.text})
        if isinstance(part, ReasoningDelta):
            start = {"type": "thinking", "thinking": "", "signature": ""}
            return self._grow("thinking", start, {"type": "thinking_delta", "thinking": part.text})
        if isinstance(part, ToolCallStart):
            block: dict[str, Any] = {"type": "tool_use", "id": part.call_id, "name": part.name, "input": {}}
            return [*self.close(), self._start("tool_use", block)]
        if isinstance(part, ToolArgumentsDelta):
            return [self._delta({"type": "input_json_delta", "partial_json": part.text})]
        return self.close()

    def close(self) -> list[tuple[str, dict[str, Any]]]:
        """End the block that is open."""
        if self.open is None:
            return []
        events = []
        if self.open == "thinking":
            events.append(self._delta({"type": "signature_delta", "signature": _signature()}))
        events.append(("content_block_stop", {"index": self.count - 1}))
        self.open = None
        return events

    def _grow(self, kind: str, start: dict[str, Any], delta: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        if self.open == kind:
            return [self._delta(delta)]
        return [*self.close(), self._start(kind, start), self._delta(delta)]

    def _start(self, kind: str, block: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        self.open = kind
        self.count += 1
        return "content_block_start", {"index": self.count - 1, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return "content_block_delta", {"index": self.count - 1, "delta": delta}


def _signature() -> str:
    """Clients keep it and send it back; nothing here reads it."""
    return secrets.token_hex(32)


async def stream_of(answer: ChatAnswer) -> AsyncGenerator[bytes, None]:
    """The events of a stream, in Anthropic's order."""
    blocks = _Blocks()
    start = {**_head(answer), "content": [], "stop_reason": None, "stop_sequence": None}
    usage = {**_usage(answer), "output_tokens": 0}
    yield _event("message_start", {"message": {**start, "usage": usage}})
    ending = ChatFinish("stop")
    async with aclosing(answer.parts()) as parts:
        async for part in parts:
            if isinstance(part, ChatFinish):
                ending = part
                continue
            for name, data in blocks.take(part):
                yield _event(name, data)
    for name, data in blocks.close():
        yield _event(name, data)
    yield _event("message_delta", {"delta": _ending(ending), "usage": _usage(answer)})
    yield _event("message_stop", {})


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode({"type": name, **data}))


async def message_of(answer: ChatAnswer) -> bytes:
    """The whole message."""
    content: list[dict[str, Any]] = []
    blocks, ending = _Blocks(), ChatFinish("stop")
    async with aclosing(answer.parts()) as parts:
        async for part in parts:
            if isinstance(part, ChatFinish):
                ending = part
                continue
            for event in blocks.take(part):
                _apply(content, *event)
    for event in blocks.close():
        _apply(content, *event)
    for block in content:
        if block["type"] == "tool_use":
            block["input"] = _input(block.pop("arguments", ""))
    return encode({**_head(answer), "content": content, **_ending(ending), "usage": _usage(answer)})


def _apply(content: list[dict[str, Any]], name: str, data: dict[str, Any]) -> None:
    """Put a stream's event into the blocks of a whole message."""
    if name == "content_block_start":
        content.append(dict(data["content_block"]))
        return
    delta = data.get("delta", {})
    for of, field, into in (
        ("text_delta", "text", "text"),
        ("thinking_delta", "thinking", "thinking"),
        ("signature_delta", "signature", "signature"),
        ("input_json_delta", "partial_json", "arguments"),
    ):
        if delta.get("type") == of:
            content[-1][into] = content[-1].get(into, "") + delta[field]


def _input(arguments: str) -> Any:
    """The arguments as an object; what a cut left incomplete is kept as text, since nothing may be made up."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return {"partial_json": arguments}
    return value if isinstance(value, dict) else {"value": value}
