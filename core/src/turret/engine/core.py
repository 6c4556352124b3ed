"""The engine: plan, submit, collect, commit.

Owns: the order of steps, how many are under way, and what happens when one fails. Knows nothing of sockets, clients or
what a worker computes.

With `async_depth` 2, step N+1 is planned and submitted while the worker runs N, so the worker never waits for us; with
1 each step is planned from the result of the one before.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from turret.contracts import WatchableWorker, Worker
from turret.errors import EngineDeadError, EngineError, TurretError
from turret.messages import DRAINED_STATS, EngineReady, EngineStats, FinishReason, Request, TokenEvent
from turret.scheduler import Scheduler

__all__ = ["EngineCore"]

logger = logging.getLogger(__name__)


class EngineCore:
    """One scheduler and one worker, stepped by whoever holds it; single-threaded.

    Once dead (`dead_reason` is set) it never runs again: `add` raises `EngineDeadError`, and the events that end every
    open request come out of the next `finish`.
    """

    def __init__(self, scheduler: Scheduler, worker: Worker, ready: EngineReady, async_depth: int = 2) -> None:
        if async_depth < 1:
            raise EngineError(f"async_depth must be at least 1, got {async_depth}")
        self.ready = ready
        self.dead_reason: str | None = None
        self._scheduler = scheduler
        self._worker = worker
        self._depth = async_depth
        self._in_flight: deque[int] = deque()
        self._last_words: list[TokenEvent] = []
        self._peeked: EngineStats | None = None  # its lists were taken by a peek, and `stats` still owes them
        self._methods: dict[str, Callable[..., Any]] = {
            "health": lambda: self._worker.call("health", []),
            "pid": os.getpid,
            "reset_prefix_cache": scheduler.reset_prefix_cache,
            "stats": self._peek,
            "worker": lambda method, *args: self._worker.call(method, list(args)),
        }

    @property
    def has_work(self) -> bool:
        """True while a request is open, a step is under way, or last words are unsaid."""
        return bool(self._in_flight) or bool(self._last_words) or self._scheduler.has_unfinished

    @property
    def busy(self) -> bool:
        """True while a step is under way."""
        return bool(self._in_flight)

    @property
    def watch_fd(self) -> int | None:
        """Readable when the worker may be gone; None when it cannot be watched."""
        return self._worker.fileno() if isinstance(self._worker, WatchableWorker) else None

    def look_after_worker(self) -> None:
        """While nothing is under way: find out whether the worker still lives."""
        if self._in_flight or self.dead_reason is not None:
            return
        try:
            result = self._worker.collect(0.0)
            if result is not None:
                raise EngineDeadError(f"the worker answered with step {result.step_id}, which nobody asked for")
        except Exception as error:
            self._die(error)

    def add(self, request: Request) -> None:
        """Take a request in; raises `RequestError` when it can never run, `EngineDeadError` when nothing can."""
        if self.dead_reason is not None:
            raise EngineDeadError(self.dead_reason)
        self._scheduler.add(request)

    def abort(self, request_ids: list[str]) -> list[TokenEvent]:
        """Drop requests at once: blocks return now, a step under way is ignored for them."""
        return self._scheduler.abort(request_ids)

    def step(self) -> list[TokenEvent]:
        """One turn: keep the worker fed, take the oldest result in."""
        events = self.expire()
        self.launch()
        return events + self.finish()

    def expire(self) -> list[TokenEvent]:
        """End the requests that waited past their deadline and never ran."""
        return self._scheduler.expire()

    def launch(self) -> None:
        """Plan and submit until `async_depth` steps are under way or nothing more can run."""
        if self.dead_reason is not None:
            return
        try:
            while len(self._in_flight) < self._depth:
                plan = self._scheduler.plan()
                if plan is None:
                    return
                self._worker.submit(plan)
                self._in_flight.append(plan.step_id)
        except Exception as error:
            self._die(error)

    def finish(self) -> list[TokenEvent]:
        """Wait for the oldest step under way and commit it; no events when there is none."""
        if self._in_flight:
            try:
                return self._collect()
            except Exception as error:
                self._die(error)
        words, self._last_words = self._last_words, []
        return words

    def stats(self) -> EngineStats:
        """Counters and gauges of now; what the lists tell is told once."""
        stats = self._scheduler.stats()
        peeked, self._peeked = self._peeked, None
        if peeked is None:
            return stats
        owed = {name: getattr(peeked, name) + getattr(stats, name) for name in DRAINED_STATS}
        return msgspec.structs.replace(stats, **owed)

    def call(self, method: str, args: list[Any]) -> Any:
        """A named method with plain arguments and a plain result; raises `EngineError` for an unknown one."""
        function = self._methods.get(method)
        if function is None:
            raise EngineError(f"the engine has no method {method!r}; it has {', '.join(sorted(self._methods))}")
        return msgspec.to_builtins(function(*args))

    def shutdown(self) -> list[TokenEvent]:
        """End open requests with an abort event and release the worker; safe to repeat."""
        events = [*self._last_words, *self._end_all(FinishReason.ABORT, None)]
        self._last_words = []
        self._in_flight.clear()
        if self.dead_reason is None:
            self.dead_reason = "the engine was shut down"
        self._worker.shutdown()
        return events

    def _peek(self) -> EngineStats:
        """What `stats` says, without taking anything from whoever counts."""
        self._peeked = self.stats()
        return self._peeked

    def _collect(self) -> list[TokenEvent]:
        result = self._worker.collect()
        expected = self._in_flight.popleft()
        if result is None or result.step_id != expected:
            got = "nothing" if result is None else f"step {result.step_id}"
            raise EngineDeadError(f"the worker answered with {got} where step {expected} was due")
        return self._scheduler.commit(result)

    def _die(self, error: Exception) -> None:
        if isinstance(error, TurretError):
            self.dead_reason = str(error)
            logger.error("the engine is dead: %s", error)
        else:
            self.dead_reason = f"the engine failed: {type(error).__name__}: {error}"
            logger.critical("the engine failed", exc_info=error)
        self._in_flight.clear()
        ended = self._end_all(FinishReason.ERROR, self.dead_reason)
        self._last_words = [msgspec.structs.replace(e, error_status=EngineDeadError.status) for e in ended]

    def _end_all(self, reason: FinishReason, error: str | None) -> list[TokenEvent]:
        """Events that end all open requests; none when the scheduler itself is what broke: the loop covers those."""
        try:
            return self._scheduler.finish_all(reason, error)
        except Exception:
            logger.exception("the scheduler could not end its requests")
            return []
