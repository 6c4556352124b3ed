"""Several engines for a caller without an event loop.

Owns: a thread with an event loop, in which a client of the engines lives. Knows nothing of prompts' text.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from turret.engine.faults import event_error
from turret.engine.ports import Client, Progress
from turret.engine.stream import EngineStream
from turret.errors import EngineDeadError, TurretError
from turret.messages import EngineReady, EngineStats, Request, TokenEvent

__all__ = ["OfflineFleet"]

T = TypeVar("T")


class OfflineFleet:
    """The calls of `InprocEngine` over engines in processes of their own. One caller at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="turret-engines", daemon=True)

    def start(self, progress: Progress | None = None) -> EngineReady:
        """Wait until all engines are up; raises what stopped one."""
        self._thread.start()
        try:
            return self._run(self._client.start(progress))
        except BaseException:
            self.shutdown()
            raise

    @property
    def ready(self) -> EngineReady:
        """Facts of the engine with the smallest cache."""
        return self._client.ready

    @property
    def engines(self) -> list[EngineReady]:
        """Facts of each engine."""
        return [engine.ready for engine in self._client.engines]

    @property
    def stats(self) -> EngineStats:
        """Counters and gauges of now, added up."""
        return self._client.stats

    def abort(self, request_ids: Iterable[str]) -> None:
        """Drop requests; unknown ids are ignored."""
        self._run(self._client.abort(list(request_ids)))

    def generate(self, requests: Iterable[Request]) -> Iterator[TokenEvent]:
        """Events of all requests until each had its last one; a refused request's only event is its error.

        Raises `EngineDeadError` when an engine is gone. Leaving the loop early aborts what is open.
        """
        stream = self._run(self._submit(list(requests)))
        try:
            while events := self._run(stream.batch()):
                for event in events:
                    if isinstance(error := event_error(event), EngineDeadError):
                        raise error
                    yield event
        finally:
            self._run(self._close(stream))

    def call(self, method: str, *args: Any) -> Any:
        """Call a method of all engines; raises `EngineError`."""
        return self._run(self._client.call(method, *args))

    def shutdown(self) -> None:
        """End the engines; safe to repeat."""
        if self._loop.is_closed():
            return
        if self._thread.ident is not None:
            with contextlib.suppress(TurretError):
                self._run(self._client.shutdown())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    async def _submit(self, requests: list[Request]) -> EngineStream:
        return self._client.submit(requests)

    async def _close(self, stream: EngineStream) -> None:
        stream.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the loop's thread and give the value or raise what it raised."""
        if self._loop.is_closed():
            work.close()
            raise EngineDeadError("the engines were shut down")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
