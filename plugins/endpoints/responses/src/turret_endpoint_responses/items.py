"""From what an answer holds to output items and the events that a stream tells of them; items that were asked with.

Owns: items, their order, ids and pages. Knows nothing of requests or of what is stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turret.contracts import ContentDelta, ParserEvent, ReasoningDelta, ToolArgumentsDelta, ToolCallStart
from turret.errors import RequestError
from turret_endpoint_responses.custom import InputReader
from turret_endpoint_responses.tools import Toolbox

__all__ = ["Event", "Items", "asked_items", "page_of"]

Event = tuple[str, dict[str, Any]]
"""Name and members of an event, without its number."""


class Items:
    """Puts the parts of an answer into output items; `output` is what there is so far."""

    def __init__(self, box: Toolbox) -> None:
        self.output: list[dict[str, Any]] = []
        self._box = box
        self._open = False
        self._input: InputReader | None = None  # of the custom tool's call that is open

    def take(self, part: ParserEvent) -> Iterator[Event]:
        """Events of one part."""
        if isinstance(part, ContentDelta):
            yield from self._begin("message")
            yield from self._grow("content", "output_text", part.text)
        elif isinstance(part, ReasoningDelta):
            yield from self._begin("reasoning")
            yield from self._grow("content", "reasoning_text", part.text)
        elif isinstance(part, ToolCallStart):
            yield from self.close()
            yield self._add(self._call(part))
        elif isinstance(part, ToolArgumentsDelta):
            yield from self._argue(part.text)
        else:
            yield from self.close()

    def close(self, status: str = "completed") -> Iterator[Event]:
        """End the item that is open."""
        if not self._open:
            return
        item, place = self.output[-1], self._place()
        if self._input is not None:
            yield from self._grow_input(self._input.finish())
            self._input = None
            yield "response.custom_tool_call_input.done", {**place, "input": item["input"]}
        elif item["type"] == "function_call":
            done = {**place, "name": item["name"], "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", done
        else:
            part = item["content"][0]
            kind, noun = (
                ("output_text", "content_part") if item["type"] == "message" else ("reasoning_text", "reasoning_part")
            )
            yield f"response.{kind}.done", {**place, "content_index": 0, "text": part["text"], **_logprobs(kind)}
            yield f"response.{noun}.done", {**place, "content_index": 0, "part": dict(part)}
        item["status"] = status
        self._open = False
        yield "response.output_item.done", {"output_index": place["output_index"], "item": _copy(item)}

    def _begin(self, kind: str) -> Iterator[Event]:
        if self._open and self.output[-1]["type"] == kind:
            return
        yield from self.close()
        if kind == "message":
            item: dict[str, Any] = {"type": "message", "id": _id("msg"), "role": "assistant", "content": []}
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            noun = "content_part"
        else:
            item = {"type": "reasoning", "id": _id("rs"), "summary": [], "content": []}
            part, noun = {"type": "reasoning_text", "text": ""}, "reasoning_part"
        yield self._add(item)
        item["content"].append(part)
        yield f"response.{noun}.added", {**self._place(), "content_index": 0, "part": dict(part)}

    def _call(self, part: ToolCallStart) -> dict[str, Any]:
        """The item of a call, as the client declared what is called."""
        origin = self._box.origin(part.name)
        if origin.custom:
            self._input = InputReader()
            head = {"type": "custom_tool_call", "id": _id("ctc"), "call_id": part.call_id}
            return {**head, "name": origin.name, "input": ""}
        head = {"type": "function_call", "id": _id("fc"), "call_id": part.call_id}
        place = {} if origin.namespace is None else {"namespace": origin.namespace}
        return {**head, **place, "name": origin.name, "arguments": ""}

    def _argue(self, text: str) -> Iterator[Event]:
        if self._input is not None:
            yield from self._grow_input(self._input.feed(text))
            return
        self.output[-1]["arguments"] += text
        yield "response.function_call_arguments.delta", {**self._place(), "delta": text}

    def _grow_input(self, text: str) -> Iterator[Event]:
        if text:
            self.output[-1]["input"] += text
            yield "response.custom_tool_call_input.delta", {**self._place(), "delta": text}

    def _add(self, item: dict[str, Any]) -> Event:
        item["status"] = "in_progress"
        self.output.append(item)
        self._open = True
        return "response.output_item.added", {"output_index": len(self.output) - 1, "item": _copy(item)}

    def _grow(self, field: str, kind: str, text: str) -> Iterator[Event]:
        self.output[-1][field][0]["text"] += text
        yield f"response.{kind}.delta", {**self._place(), "content_index": 0, "delta": text, **_logprobs(kind)}

    def _place(self) -> dict[str, Any]:
        return {"output_index": len(self.output) - 1, "item_id": self.output[-1]["id"]}


def asked_items(given: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Input as a list of items that have ids; a message's text is a part of it."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [_asked(item) for item in items]


def _asked(item: Mapping[str, Any]) -> dict[str, Any]:
    made = {"type": "message", **item}
    if isinstance(text := made.get("content"), str):
        kind = "output_text" if made.get("role") == "assistant" else "input_text"
        made["content"] = [{"type": kind, "text": text}]
    return {**made, "id": made.get("id") or _id("msg" if made["type"] == "message" else "item")}


def page_of(items: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """A page of the list, the latest item first unless `order` is asc. Raises RequestError."""
    order, limit, after = query.get("order", "desc"), query.get("limit", "20"), query.get("after")
    if order not in ("asc", "desc"):
        raise RequestError(f"order must be asc or desc, got {order!r}", "order")
    if not limit.isdecimal() or not 1 <= int(limit) <= 100:
        raise RequestError(f"limit must be between 1 and 100, got {limit!r}", "limit")
    ordered = list(items) if order == "asc" else list(reversed(items))
    ids = [item["id"] for item in ordered]
    if after is not None and after not in ids:
        raise RequestError(f"after names no item of this response: {after!r}", "after")
    begin = 0 if after is None else ids.index(after) + 1
    page = ordered[begin : begin + int(limit)]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    return {"object": "list", "data": page, **ends, "has_more": begin + len(page) < len(ordered)}


def _logprobs(kind: str) -> dict[str, Any]:
    return {"logprobs": []} if kind == "output_text" else {}


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    """The item as it is now; it goes on changing."""
    content = item.get("content")
    return dict(item) if content is None else {**item, "content": [dict(part) for part in content]}


def _id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"
