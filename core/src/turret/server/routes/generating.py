"""A route that generates: from a body to its answer, whole or streamed.

Owns: the order of such a call. Knows the shape of no body and no answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from turret.server.bodies import BodyReader
from turret.server.connection import EventStream, while_connected
from turret.server.load_report import report_load
from turret.server.openapi import body_schema
from turret.server.state import CallContext, ServerState
from turret.server.wire import CallFields

__all__ = ["GeneratingCall", "GeneratingRoute", "generating_router"]

Body = TypeVar("Body", bound=CallFields)


class GeneratingCall(Protocol):
    """A call that was checked: nothing runs until one of these is asked for."""

    async def answer(self) -> Response:
        """The whole answer."""

    def events(self) -> AsyncGenerator[bytes, None]:
        """The stream."""


@dataclass(frozen=True, slots=True)
class GeneratingRoute:
    """Where it is and how the document calls it."""

    path: str
    name: str
    about: str


def generating_router(
    state: ServerState,
    route: GeneratingRoute,
    shapes: tuple[type[Body], type],
    start: Callable[[ServerState, CallContext, Body], Awaitable[GeneratingCall]],
) -> APIRouter:
    """A router with one POST route; `shapes` are those of body and whole answer, `start` checks a body."""
    router = APIRouter(tags=[route.name])
    reader = BodyReader(shapes[0])

    async def generate(request: Request) -> Response:
        state.check_open()
        body = await reader.read(request)
        context = state.begin(request, body)
        call = await start(state, context, body)
        if body.stream:
            log_stack = state.config.observability.log_error_stack
            return EventStream(call.events(), settled=context.queue_deadline is not None, log_stack=log_stack)
        return report_load(request, await while_connected(request, call.answer()), state.parts.client)

    router.add_api_route(
        route.path, generate, methods=["POST"], response_class=Response, name=route.name, description=route.about,
        openapi_extra=body_schema(*shapes),
    )  # fmt: skip
    return router
