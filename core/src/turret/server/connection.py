"""Answers that stop working when the client hangs up.

Owns: the race between an answer and a disconnect, and the event-stream response. Knows nothing of what is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turret.errors import TurretError
from turret.server.faults import error_event

__all__ = ["ClientGone", "EventStream", "EventWording", "while_connected"]

T = TypeVar("T")
log = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"


class ClientGone(Exception):
    """The client hung up; there is nobody to answer."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client hangs up (then raises `ClientGone`)."""
    task = asyncio.ensure_future(work)
    await _race(task, request.receive)
    return task.result()


@dataclass(frozen=True, slots=True)
class EventWording:
    """What a stream says of an error, and at its end."""

    error: Callable[[BaseException], bytes]
    end: bytes


class EventStream(Response):
    """Server-sent events from an iterator of encoded events.

    An exception of the iterator becomes a last event with the error object; `[DONE]` ends the stream either way. With
    `settled` nothing is sent before the first event is there, so that an error until then is an answer with its own
    status. Errors that nobody raised on purpose leave their stack in the log; with `log_stack` all do. Other APIs than
    OpenAI's have a `wording` of their own.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        headers: Mapping[str, str] | None = None,
        settled: bool = False,
        log_stack: bool = False,
        wording: EventWording | None = None,
    ) -> None:
        super().__init__(b"", 200, dict(headers or {}), "text/event-stream")
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self._events = events
        self._settled = settled
        self._log_stack = log_stack
        self._wording = wording or EventWording(error_event, DONE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; stop when the client hangs up."""
        try:
            await _race(asyncio.ensure_future(self._pump(send)), receive)
        except ClientGone:
            log.debug("client hung up during a stream")

    async def _pump(self, send: Send) -> None:
        begun = not self._settled
        if begun:
            await self._begin(send)
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    if not begun:
                        begun = True
                        await self._begin(send)
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        except Exception as error:
            if not begun:
                raise  # to the handlers, which answer any error
            if self._log_stack or not isinstance(error, TurretError):
                log.error("a stream ended with an error", exc_info=error)
            await send({"type": "http.response.body", "body": self._wording.error(error), "more_body": True})
        await send({"type": "http.response.body", "body": self._wording.end, "more_body": False})

    async def _begin(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})


async def _race(task: asyncio.Future[Any], receive: Receive) -> None:
    """Wait for `task`; when the client hangs up first, cancel it, wait until it has cleaned up, raise `ClientGone`."""
    gone = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    if task.cancelled():
        raise ClientGone
    task.result()


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
