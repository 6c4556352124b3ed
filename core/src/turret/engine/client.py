"""The client: how a front end in an event loop talks to an engine.

Owns: open streams, pending calls, whether the engine lives. Knows nothing of HTTP, nor whether the engine is a process
or a thread: a `Link` brings frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from turret.engine.faults import ended
from turret.engine.ports import Link, Progress
from turret.engine.stream import EngineStream
from turret.errors import CapacityError, EngineDeadError, EngineError, RequestError
from turret.messages import (
    Abort,
    EngineFailure,
    EngineFrame,
    EngineReady,
    EngineStats,
    Events,
    Forget,
    Request,
    Submit,
    TokenEvent,
    Utility,
    UtilityReply,
    Watch,
)

__all__ = ["EngineClient"]

STOP_GRACE = 10.0
"""Seconds an engine gets to release its worker before it is ended by force."""


class EngineClient:
    """Submits, streams, aborts. Make one per event loop; every method is called in that loop.

    `stats` is the latest the engine told; `stats_listener`, when set, sees each beside the engine's index.
    `dead_reason` says why the engine is gone; None while it lives. Where there are several, `name` ("engine 2") is put
    before what is said of this one.
    """

    def __init__(self, link: Link, index: int = 0, name: str = "") -> None:
        self.index = index
        self.name = name
        self.stats = EngineStats()
        self.stats_listener: Callable[[int, EngineStats], None] | None = None
        self.dead_reason: str | None = None
        self._link = link
        self._ready: EngineReady | None = None
        self._streams: dict[str, EngineStream] = {}
        self._leaving: set[str] = set()  # closed here, not yet ended by the engine: their ids are still taken
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._call_ids = itertools.count(1)
        self._closing = False  # takes no more requests
        self._stopping = False  # told the engine to end: its end is no fault
        self._dead = asyncio.Event()
        self._drained = asyncio.Event()

    async def start(self, progress: Progress | None = None) -> EngineReady:
        """Wait until the engine is up; raises what stopped it (`LoadError`, `ConfigError`, `EngineDeadError`, ...)."""
        try:
            self._ready = await self._link.start(self, progress)
        except BaseException as error:
            self.on_dead(str(error) or type(error).__name__)
            raise
        return self._ready

    @property
    def ready(self) -> EngineReady:
        """Facts of the engine; `EngineError` before it is up."""
        if self._ready is None:
            raise EngineError("the engine is not up yet")
        return self._ready

    @property
    def healthy(self) -> bool:
        """True while the engine is up and takes requests."""
        return self._ready is not None and self.dead_reason is None and not self._closing

    @property
    def fault(self) -> str | None:
        """Why the engine cannot be called well; None while it can."""
        return self.dead_reason

    @property
    def engines(self) -> Sequence[EngineClient]:
        """Itself: what `EngineFleet` has several of."""
        return (self,)

    @property
    def num_open(self) -> int:
        """Requests without a last event."""
        return len(self._streams)

    def submit(self, requests: Request | Sequence[Request], stream: EngineStream | None = None) -> EngineStream:
        """Hand over one request, or several that share a stream (one that is there already, if given). The stream's
        first event may be a refusal.

        Raises `EngineDeadError`, `CapacityError` while draining, `RequestError` for an id that is in use or a request
        too long to send.
        """
        batch = [requests] if isinstance(requests, Request) else list(requests)
        if self.dead_reason is not None:
            raise EngineDeadError(self.dead_reason)
        if self._closing or self._ready is None:
            raise CapacityError("the server is shutting down" if self._closing else "the engine is not up yet")
        ids = [request.request_id for request in batch]
        for position, request_id in enumerate(ids):
            if request_id in self._streams or request_id in self._leaving or request_id in ids[:position]:
                raise RequestError(f"request id {request_id!r} is already in use", "request_id")
        if stream is None:
            stream = EngineStream(ids, self.drop)
        self._link.send(Submit(requests=batch))
        self._streams.update(dict.fromkeys(ids, stream))
        return stream

    async def generate(self, request: Request) -> AsyncIterator[TokenEvent]:
        """The events of one request; leaving the loop early aborts it."""
        async with self.submit(request) as stream:
            async for event in stream:
                yield event

    async def abort(self, request_ids: Sequence[str]) -> None:
        """Drop requests now; their streams end with an abort event. Unknown ids are ignored."""
        for request_id in request_ids:
            stream = self._streams.get(request_id)
            if stream is not None:
                stream.abort([request_id])

    async def call(self, method: str, *args: Any) -> Any:
        """Call an engine method (`stats`, `reset_prefix_cache`, `health`, `pid`, ...); raises `EngineError`."""
        if self.dead_reason is not None:
            raise EngineDeadError(self.dead_reason)
        call_id = next(self._call_ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        try:
            self._link.send(Utility(call_id=call_id, method=method, args=list(args)))
            return await future
        finally:
            self._calls.pop(call_id, None)

    def watch(self) -> None:
        """Be the one client that gets the engine's statistics, whoever's requests run."""
        self._link.send(Watch())

    def forget(self, client: bytes) -> None:
        """Another client of the engine is gone: its requests are dropped."""
        if self.dead_reason is None:
            self._link.send(Forget(client))

    async def wait_dead(self) -> str:
        """Block until the engine is gone; why."""
        await self._dead.wait()
        return self.dead_reason or ""

    async def deaths(self) -> AsyncIterator[str]:
        """One sentence when the engine is gone."""
        yield await self.wait_dead()

    async def shutdown(self, timeout: float = 0.0) -> None:
        """Take no more requests, give open ones `timeout` seconds, abort the rest (by an event), end the engine."""
        self._closing = True
        if self._streams and timeout > 0 and self.dead_reason is None:
            self._drained.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), timeout)
        self._stopping = True
        await self._link.stop(STOP_GRACE)
        self.on_dead("the engine was shut down")

    def on_frame(self, frame: EngineFrame) -> None:
        """A frame from the engine (called by the link)."""
        if isinstance(frame, Events):
            streams = self._streams
            for event in frame.events:
                stream = streams.get(event.request_id)
                if stream is None:
                    if event.finish_reason is not None:
                        self._leaving.discard(event.request_id)
                    continue
                stream.put(event)
                if event.finish_reason is not None:
                    del streams[event.request_id]
            if frame.stats is not None:
                self.stats = frame.stats
                if self.stats_listener is not None:
                    self.stats_listener(self.index, frame.stats)
            if self._closing and not streams:
                self._drained.set()
        elif isinstance(frame, UtilityReply):
            self._settle(frame)
        elif isinstance(frame, EngineFailure):
            self.on_dead(frame.message)

    def on_dead(self, reason: str) -> None:
        """The engine is gone (called by the link): every open stream and call ends now."""
        if self.dead_reason is not None:
            return
        if self.name:
            reason = f"{self.name}: {reason}"
        self.dead_reason = "the engine was shut down" if self._stopping else reason
        for request_id, stream in self._streams.items():
            stream.put(ended(request_id, None if self._stopping else reason))
        self._streams.clear()
        self._drained.set()
        for future in self._calls.values():
            if not future.done():
                future.set_exception(EngineDeadError(reason))
        self._dead.set()

    def _settle(self, reply: UtilityReply) -> None:
        future = self._calls.get(reply.call_id)
        if future is None or future.done():
            return
        if reply.error is None:
            future.set_result(reply.result)
        else:
            future.set_exception(EngineError(reply.error))

    def drop(self, request_ids: list[str]) -> None:
        """These requests' stream was closed early (called by the stream)."""
        for request_id in request_ids:
            self._streams.pop(request_id, None)
        if self.dead_reason is None:
            self._leaving.update(request_ids)
            self._link.send(Abort(request_ids=request_ids))
        if not self._streams:
            self._drained.set()
