"""Routes of endpoint plugins, on the handler that chats.

Owns: what a plugin is given of a request, and how its answers and its errors leave. Knows nothing of any API.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from turret.contracts import (
    ChatAnswer,
    ChatFinish,
    ChatUsage,
    ContentDelta,
    Endpoint,
    EndpointAnswer,
    EndpointCall,
    EndpointFault,
    EndpointRoute,
    EndpointStream,
    ParserEvent,
)
from turret.errors import RequestError, TurretError
from turret.server.bodies import read_json
from turret.server.chat_calls import BegunChat, begin_chat
from turret.server.connection import ClientGone, EventStream, EventWording, while_connected
from turret.server.conversation import render
from turret.server.faults import Fault, fault_of, refusal_of
from turret.server.open_calls import id_prefix
from turret.server.state import CallContext, ServerState
from turret.server.wire import ChatRequest

__all__ = ["ChatHost", "endpoint_routes"]

log = logging.getLogger("turret.server")


class _Answer:
    """See `ChatAnswer`."""

    def __init__(self, state: ServerState, begun: BegunChat, prefix: str) -> None:
        self.id = prefix + begun.run.job.request_id
        self.model = state.model_name
        self.created = int(time.time())
        self._begun = begun

    async def parts(self) -> AsyncGenerator[ParserEvent | ChatFinish, None]:
        """What the answer holds."""
        reader = self._begun.readers[0] if self._begun.readers else None
        async with aclosing(self._begun.run.deltas()) as deltas:
            async for delta in deltas:
                last = delta.finish_reason is not None
                if reader is not None:
                    for event in reader.read(delta.text, delta.token_ids, last):
                        yield event
                elif delta.text:
                    yield ContentDelta(delta.text)
                if delta.finish_reason is not None:
                    called = reader is not None and reader.calls and delta.finish_reason == "stop"
                    yield ChatFinish("tool_calls" if called else delta.finish_reason, delta.stop_reason)

    def usage(self) -> ChatUsage:
        """Counts so far."""
        run = self._begun.run
        thought = self._begun.num_reasoning_tokens()
        return ChatUsage(run.job.num_prompt_tokens, run.num_cached_tokens, run.num_output_tokens, thought)


class ChatHost:
    """See `EndpointHost`."""

    def __init__(self, state: ServerState, prefix: str) -> None:
        self._state = state
        self._prefix = prefix

    async def chat(self, call: EndpointCall, body: Mapping[str, Any]) -> ChatAnswer:
        """The answer to a body of chat completions."""
        context, chat = self._begin(call, body)
        if chat.n not in (None, 1):
            raise RequestError("n must be 1 here: an answer of this API is one message", "n")
        return _Answer(self._state, await begin_chat(self._state, context, chat), self._prefix)

    async def count(self, call: EndpointCall, body: Mapping[str, Any]) -> int:
        """Tokens of the prompt."""
        _, chat = self._begin(call, body)
        return len((await render(self._state, chat)).token_ids)

    def _begin(self, call: EndpointCall, body: Mapping[str, Any]) -> tuple[CallContext, ChatRequest]:
        try:
            chat = msgspec.convert(body, ChatRequest)
        except msgspec.ValidationError as error:
            raise RequestError(f"what this request comes to is no chat completion: {error}") from error
        return self._state.begin(call, chat), chat


def endpoint_routes(state: ServerState, endpoint: Endpoint) -> APIRouter:
    """A router with the paths of one endpoint."""
    router = APIRouter()
    for route in endpoint.routes(ChatHost(state, id_prefix(endpoint))):
        router.add_api_route(
            route.path, _handler(state, route), methods=[route.method], response_class=Response,
            description=route.about, name=f"{route.method} {route.path}",
            openapi_extra={"requestBody": _ANY_BODY} if route.method == "POST" else None,
        )  # fmt: skip
    return router


_ANY_BODY: dict[str, Any] = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}


def _handler(state: ServerState, route: EndpointRoute) -> Any:
    """The handler of a path: errors leave in the API's own shape."""

    async def handle(request: Request) -> Response:
        try:
            return await _answered(state, route, request)
        except (ClientGone, asyncio.CancelledError):
            raise
        except Exception as error:
            if not isinstance(error, TurretError):
                log.error("%s %s failed unexpectedly", request.method, request.url.path, exc_info=error)
            if (reason := refusal_of(error, state.lifecycle.draining)) is not None:
                state.metrics.refused(reason)
            fault = fault_of(error)
            return Response(route.fault(_told(fault)), fault.status, fault.headers, "application/json")

    return handle


async def _answered(state: ServerState, route: EndpointRoute, request: Request) -> Response:
    state.check_open()
    call = EndpointCall(
        body=await read_json(request) if route.method == "POST" else None,
        query=dict(request.query_params),
        path={name: str(value) for name, value in request.path_params.items()},
        headers={name.lower(): value for name, value in request.headers.items()},
        tenant=state.tenant(request),
    )
    made = await while_connected(request, _made(route, call))
    if isinstance(made, EndpointAnswer):
        return Response(made.body, made.status, media_type=made.media_type)
    on_error = made.on_error
    wording = EventWording(lambda error: on_error(_told(fault_of(error))), b"")
    return EventStream(made.events, log_stack=state.config.observability.log_error_stack, wording=wording)


async def _made(route: EndpointRoute, call: EndpointCall) -> EndpointAnswer | EndpointStream:
    return await route.handler(call)


def _told(fault: Fault) -> EndpointFault:
    return EndpointFault(fault.status, fault.type, fault.message, fault.param)
