"""`LocalWorker`: the contract `worker` in this process, on a thread of its own.

Owns: the thread and the two queues. Knows nothing of what a step does.

Everything that touches the device runs on that one thread, in the order it was asked for: torch's threads belong to
whoever calls, and a step must see what the step before it left. torch releases the interpreter while it computes.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from turret.contracts import WorkerEnv
from turret.errors import EngineDeadError, EngineError
from turret.messages import KVCacheConfig, StepPlan, StepResult, WorkerFacts
from turret.worker.runner import Runner
from turret.worker.setup import ModelSource, WorkerLimits, WorkerParts

__all__ = ["LocalWorker"]

logger = logging.getLogger(__name__)

_JOIN_SECONDS = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Errand:
    """Work that somebody waits for."""

    work: Callable[[], Any]
    future: Future[Any]


class LocalWorker:
    """A worker whose steps run while the caller does something else. One thread may `collect`, one may do the rest."""

    def __init__(self, parts: WorkerParts, source: ModelSource, limits: WorkerLimits) -> None:
        self._parts = parts
        self._source = source
        self._limits = limits
        self._runner: Runner | None = None
        self._tasks: queue.SimpleQueue[StepPlan | _Errand | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[StepResult | BaseException] = queue.SimpleQueue()
        self._death: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="turret-worker", daemon=True)

    def start(self, progress: Callable[[str, float], None] | None = None) -> WorkerFacts:
        """Load the model; `progress` is called on the worker's thread while the caller waits."""
        if self._thread.ident is not None:
            raise EngineError("the worker was started already")
        self._thread.start()
        return self._wait(lambda: self._load(progress))

    def allocate(self, config: KVCacheConfig) -> None:
        """Make the KV cache and run once over it."""
        self._wait(lambda: self._live().allocate(config))

    def submit(self, plan: StepPlan) -> None:
        """Queue a step; returns at once."""
        self._check()
        self._tasks.put(plan)

    def collect(self, timeout: float | None = None) -> StepResult | None:
        """The oldest uncollected step's result; None when `timeout` seconds passed first."""
        try:
            found = self._results.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            self._results.put(found)
            raise EngineDeadError(f"the worker's thread is gone: {type(found).__name__}: {found}") from found
        return found

    def call(self, method: str, args: list[Any]) -> Any:
        """A named method, after the steps already submitted; `pid` is answered at once."""
        self._check()
        if method == "pid":
            return os.getpid()
        return self._wait(lambda: self._live().call(method, args))

    def shutdown(self) -> None:
        """Finish the running step, forget the rest, end the thread; safe to repeat."""
        if self._closed:
            return
        self._closed = True
        self._tasks.put(None)
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)
            if self._thread.is_alive():
                logger.warning("the worker's thread did not end within %g s; it dies with the process", _JOIN_SECONDS)
        self._results.put(EngineError("the worker was shut down"))

    def _load(self, progress: Callable[[str, float], None] | None) -> WorkerFacts:
        limits = self._limits
        self._parts.platform.start_worker(WorkerEnv(limits.device_index, 0, 1, limits.threads))
        self._runner = Runner(self._parts, self._source, limits)
        return self._runner.load(progress)

    def _live(self) -> Runner:
        if self._runner is None:
            raise EngineError("the worker was not started")
        return self._runner

    def _check(self) -> None:
        if self._closed:
            raise EngineDeadError("the worker was shut down")
        if self._death is not None:
            raise EngineDeadError(f"the worker's thread is gone: {self._death}") from self._death
        if self._thread.ident is None:
            raise EngineError("the worker was not started")

    def _wait(self, work: Callable[[], T]) -> T:
        """Run `work` on the thread and give its value or raise what it raised."""
        self._check()
        errand = _Errand(work, Future())
        self._tasks.put(errand)
        self._check()  # a thread that ended after the first look has answered only what was queued by then
        found: T = errand.future.result()
        return found

    def _serve(self) -> None:
        """The thread: one task after another until shut down. A step that raises here ends the worker."""
        try:
            with torch.inference_mode():
                while not self._closed and (task := self._tasks.get()) is not None:
                    self._do(task)
        except BaseException as error:
            logger.critical("the worker's thread ends", exc_info=error)
            self._death = error
            self._results.put(error)
        self._refuse_the_rest()
        if self._runner is not None:
            self._runner.close()

    def _do(self, task: StepPlan | _Errand) -> None:
        """Faults of an errand are those of whoever waits for it; nobody waits for a step."""
        if isinstance(task, StepPlan):
            self._results.put(self._live().step(task))
            return
        try:
            task.future.set_result(task.work())
        except Exception as error:
            task.future.set_exception(error)

    def _refuse_the_rest(self) -> None:
        while not self._tasks.empty():
            task = self._tasks.get()
            if isinstance(task, _Errand):
                task.future.set_exception(EngineDeadError("the worker ended before it came to this"))
