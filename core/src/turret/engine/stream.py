"""The stream of events a caller reads.

Owns: the queue between the engine's frames and one caller. Knows nothing of where events come from.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from turret.messages import FinishReason, TokenEvent

__all__ = ["EngineStream"]


class EngineStream:
    """Events of one or more requests (the n choices of one prompt), in the order the engine made them.

    Iterate it, or take what is there in one go with `batch`: a slow reader then catches up with one turn of its loop.
    It ends after each request's last event. Leaving it early (`close`, end of an `async with`) aborts what is still
    open, once. One reader at a time, in the event loop that made it.
    """

    __slots__ = ("_drop", "_events", "_loop", "_open", "_waiter")

    def __init__(self, request_ids: Iterable[str], drop: Callable[[list[str]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = set(request_ids)
        self._drop = drop
        self._events: deque[TokenEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None

    @property
    def finished(self) -> bool:
        """True once every request had its last event (read or not)."""
        return not self._open

    def engine_of(self, request_id: str) -> int:
        """The index of the engine that has a request; there is one."""
        return 0

    def put(self, event: TokenEvent) -> None:
        """Called by the client: one event more."""
        self._events.append(event)
        if event.finish_reason is not None:
            self._open.discard(event.request_id)
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TokenEvent:
        events = self._events
        if not events:
            if not self._open:
                raise StopAsyncIteration
            await self._arrival()
        return events.popleft()

    async def batch(self) -> list[TokenEvent]:
        """Everything that is there, waiting for the first; empty at the end of the stream."""
        if not self._events and self._open:
            await self._arrival()
        events = list(self._events)
        self._events.clear()
        return events

    def close(self) -> None:
        """Abort what is still open; unread events stay readable, then the stream ends. Safe to repeat."""
        self.abort(self._open)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Abort some of the stream's requests; those that had their last event are left alone."""
        mine = sorted(self._open.intersection(request_ids))
        if not mine:
            return
        self._drop(mine)
        for request_id in mine:
            self.put(TokenEvent(request_id=request_id, finish_reason=FinishReason.ABORT))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _arrival(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("an engine stream has one reader at a time")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
