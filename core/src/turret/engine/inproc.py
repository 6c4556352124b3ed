"""The engine in the caller's hands: no thread, no socket.

Owns: the offline driver's view of a core. Knows nothing of prompts' text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from turret.engine.core import EngineCore
from turret.engine.faults import refusal
from turret.errors import EngineDeadError, TurretError
from turret.messages import EngineReady, EngineStats, Request, TokenEvent

__all__ = ["InprocEngine"]


class InprocEngine:
    """Add requests, call `step` until `has_work` is false. Single-threaded."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._pending: list[TokenEvent] = []

    @property
    def ready(self) -> EngineReady:
        """Facts of the engine."""
        return self._core.ready

    @property
    def stats(self) -> EngineStats:
        """Counters and gauges of now."""
        return self._core.stats()

    @property
    def dead_reason(self) -> str | None:
        """Why the engine is gone; None while it lives."""
        return self._core.dead_reason

    @property
    def has_work(self) -> bool:
        """True while `step` has something to do or to say."""
        return bool(self._pending) or self._core.has_work

    def add(self, request: Request) -> None:
        """Take a request in; raises `RequestError` or `EngineDeadError`."""
        self._core.add(request)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Drop requests now; their abort events come out of the next `step`. Unknown ids are ignored."""
        self._pending.extend(self._core.abort(list(request_ids)))

    def step(self) -> list[TokenEvent]:
        """One step's events. A dying engine gives the events that end every open request, then `EngineDeadError`."""
        if self._core.dead_reason is not None and not self.has_work:
            raise EngineDeadError(self._core.dead_reason)
        pending, self._pending = self._pending, []
        return [*pending, *self._core.step()]

    def generate(self, requests: Iterable[Request]) -> Iterator[TokenEvent]:
        """Events of all requests until each had its last one; a refused request's only event is its error.

        Leaving the loop early (an exception, Ctrl-C) aborts what is open, so that the engine can be used again.
        """
        unfinished: set[str] = set()
        try:
            for request in requests:
                try:
                    self.add(request)
                    unfinished.add(request.request_id)
                except EngineDeadError:
                    raise
                except TurretError as error:
                    yield refusal(request.request_id, error)
            while unfinished:
                for event in self.step():
                    if event.finish_reason is not None:
                        unfinished.discard(event.request_id)
                    yield event
        finally:
            if unfinished:
                self._core.abort(sorted(unfinished))

    def call(self, method: str, *args: Any) -> Any:
        """Call an engine method (`stats`, `reset_prefix_cache`, ...); raises `EngineError`."""
        return self._core.call(method, list(args))

    def shutdown(self) -> list[TokenEvent]:
        """Abort what is open (the events are returned) and release the worker; safe to repeat."""
        pending, self._pending = self._pending, []
        return [*pending, *self._core.shutdown()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
