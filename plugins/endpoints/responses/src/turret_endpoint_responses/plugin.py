"""Endpoint `responses`: OpenAI's Responses API on turret's chat handler.

Owns: the paths, the response object and its life. What it is made of is in `translate`, `items` and `store`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from turret.contracts import (
    ChatAnswer,
    ChatFinish,
    EndpointAnswer,
    EndpointCall,
    EndpointFault,
    EndpointHost,
    EndpointRoute,
    EndpointStream,
)
from turret.errors import RequestError, TurretError
from turret_endpoint_responses.items import Items, asked_items, page_of
from turret_endpoint_responses.shapes import ResponsesRequest
from turret_endpoint_responses.store import Store, Stored
from turret_endpoint_responses.tools import Toolbox
from turret_endpoint_responses.translate import chat_body, check, input_messages

__all__ = ["ResponsesEndpoint"]

encode = msgspec.json.encode

ECHOED = (
    "instructions", "max_output_tokens", "temperature", "top_p", "tools", "tool_choice", "parallel_tool_calls",
    "reasoning", "text", "truncation", "metadata", "previous_response_id", "background", "store", "user",
)  # fmt: skip
DEFAULTS = {
    "tools": [],
    "tool_choice": "auto",
    "metadata": {},
    "truncation": "disabled",
    "text": {"format": {"type": "text"}},
}
MAX_STORED, MAX_BYTES = 1000, 64 << 20


class ResponsesEndpoint:
    """Contract `endpoint`, 1.0."""

    api = "1.0"
    id_prefix = "resp_"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._store = Store(options.get("max_stored", MAX_STORED), options.get("max_stored_bytes", MAX_BYTES))

    def routes(self, host: EndpointHost) -> Sequence[EndpointRoute]:
        """All paths."""
        one = "/v1/responses/{response_id}"

        async def create(call: EndpointCall) -> EndpointAnswer | EndpointStream:
            return await self._create(host, call)

        return [
            EndpointRoute("POST", "/v1/responses", create, _error, "Answer in the shape of OpenAI's Responses API."),
            EndpointRoute("GET", one, self._retrieve, _error, "A response that was kept."),
            EndpointRoute("GET", one + "/input_items", self._asked, _error, "What a response that was kept answers."),
            EndpointRoute("DELETE", one, self._delete, _error, "Forget a response."),
            EndpointRoute(
                "POST", one + "/cancel", self._cancel, _error, "Stop a response that runs in the background."
            ),
        ]

    async def _create(self, host: EndpointHost, call: EndpointCall) -> EndpointAnswer | EndpointStream:
        body = _read(call.body)
        check(body)
        before = (
            []
            if body.previous_response_id is None
            else self._store.get(body.previous_response_id, call.tenant).messages
        )
        box = Toolbox.of(body.tools or ())
        # An id of its own, whatever id the client's header names: later calls go on from it.
        own_id = secrets.token_hex(16)
        answer = await host.chat(call, {**chat_body(body, before, box), "request_id": own_id})
        response = {"id": f"{self.id_prefix}{own_id}", "object": "response"}
        making = _Making(body, answer, Stored(call.tenant, response, [*before, *input_messages(body.input)]), box)
        making.stored.asked = asked_items(body.input) if body.store else []
        if body.background:
            making.stored.response["status"] = "queued"
            making.stored.task = asyncio.create_task(self._in_background(making))
            self._store.put(making.stored)
            if body.stream:
                return EndpointStream(making.stored.follow(0), _error_event)
            return EndpointAnswer(encode(making.stored.response))
        if body.stream:
            return EndpointStream(self._stream(making), _error_event)
        async with aclosing(making.events()) as events:
            async for _ in events:
                pass
        self._keep(making)
        return EndpointAnswer(encode(making.stored.response))

    async def _stream(self, making: _Making) -> AsyncGenerator[bytes, None]:
        async with aclosing(making.events()) as events:
            async for event in events:
                if making.body.store:
                    making.stored.tell(event)
                yield event
        self._keep(making)

    async def _in_background(self, making: _Making) -> None:
        stored = making.stored
        try:
            async with aclosing(making.events()) as events:
                async for event in events:
                    stored.tell(event)
        except asyncio.CancelledError:
            making.stop("cancelled")
            raise
        except TurretError as error:
            stored.response["error"] = {"code": "server_error", "message": str(error)}
            stored.tell(making.stop("failed"))
        finally:
            stored.end()
            self._keep(making)

    def _keep(self, making: _Making) -> None:
        if making.body.store:
            making.stored.messages += input_messages(making.items.output)
            self._store.put(making.stored)

    async def _retrieve(self, call: EndpointCall) -> EndpointAnswer | EndpointStream:
        stored = self._store.get(call.path["response_id"], call.tenant)
        if call.query.get("stream") != "true":
            return EndpointAnswer(encode(stored.response))
        if not stored.events and stored.task is None:
            raise RequestError("this response was not streamed; retrieve it whole", "stream")
        after = call.query.get("starting_after", "-1")
        if not after.removeprefix("-").isdecimal():
            raise RequestError(f"starting_after must be a sequence number, got {after!r}", "starting_after")
        return EndpointStream(stored.follow(max(0, int(after) + 1)), _error_event)

    async def _asked(self, call: EndpointCall) -> EndpointAnswer:
        stored = self._store.get(call.path["response_id"], call.tenant)
        return EndpointAnswer(encode(page_of(stored.asked, call.query)))

    async def _delete(self, call: EndpointCall) -> EndpointAnswer:
        stored = self._store.get(call.path["response_id"], call.tenant)
        if stored.task is not None:
            stored.task.cancel()
        self._store.drop(stored.response["id"])
        return EndpointAnswer(encode({"id": stored.response["id"], "object": "response", "deleted": True}))

    async def _cancel(self, call: EndpointCall) -> EndpointAnswer:
        stored = self._store.get(call.path["response_id"], call.tenant)
        if stored.task is None:
            raise RequestError("only a response that runs in the background can be cancelled", "response_id")
        stored.task.cancel()
        await asyncio.wait({stored.task})
        return EndpointAnswer(encode(stored.response))


class _Making:
    """One response while it is made."""

    def __init__(self, body: ResponsesRequest, answer: ChatAnswer, stored: Stored, box: Toolbox) -> None:
        self.body = body
        self.items = Items(box)
        self.stored = stored
        self._answer = answer
        self._count = 0
        echoed = {**{name: getattr(body, name) for name in ECHOED}, "tools": box.shown}
        stored.response |= {
            "created_at": answer.created,
            "status": "in_progress", "error": None, "incomplete_details": None, "model": answer.model,
            "output": self.items.output, "usage": None,
            **{name: DEFAULTS.get(name) if value is None else value for name, value in echoed.items()},
        }  # fmt: skip

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The events of its making, in OpenAI's order; at the end the response is complete."""
        response = self.stored.response
        response["status"] = "in_progress"
        yield self._event("response.created", {"response": response})
        yield self._event("response.in_progress", {"response": response})
        finish = ChatFinish("stop")
        async with aclosing(self._answer.parts()) as parts:
            async for part in parts:
                if isinstance(part, ChatFinish):
                    finish = part
                    continue
                for event in self.items.take(part):
                    yield self._event(*event)
        cut = finish.reason == "length"
        for event in self.items.close("incomplete" if cut else "completed"):
            yield self._event(*event)
        response["status"] = "incomplete" if cut else "completed"
        response["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        response["usage"] = self._usage()
        yield self._event("response.incomplete" if cut else "response.completed", {"response": response})

    def stop(self, status: str) -> bytes:
        """It ended before its time; the event that says so."""
        for _ in self.items.close("incomplete"):
            pass
        self.stored.response["status"] = status
        return self._event(f"response.{status}", {"response": self.stored.response})

    def _usage(self) -> dict[str, Any]:
        usage = self._answer.usage()
        return {
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.prompt + usage.output,
        }

    def _event(self, name: str, members: Mapping[str, Any]) -> bytes:
        data = encode({"type": name, "sequence_number": self._count, **members})
        self._count += 1
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def _read(body: Any) -> ResponsesRequest:
    try:
        return msgspec.convert(body, ResponsesRequest)
    except msgspec.ValidationError as error:
        raise RequestError(str(error)) from error


def _error(fault: EndpointFault) -> bytes:
    error = {"message": fault.message, "type": fault.type, "param": fault.param, "code": fault.status}
    return encode({"error": error})


def _error_event(fault: EndpointFault) -> bytes:
    said = {"type": "error", "code": str(fault.status), "message": fault.message, "param": fault.param}
    return b"event: error\ndata: " + encode(said) + b"\n\n"
