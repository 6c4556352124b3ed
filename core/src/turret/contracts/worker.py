"""Contracts `worker` and `executor`: who runs the forward, and where.

Owns: the Protocols between engine and workers. Knows neither queues nor tensors. Version 1.0.

`submit` and `collect` are apart so that step N+1 can be planned while N runs. Steps run in the order submitted and are
collected in that order. `collect` raises `EngineDeadError` when the worker is gone; a fault of one request is an
`error`
in its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from turret.messages import KVCacheConfig, StepPlan, StepResult, WorkerFacts

__all__ = ["WatchableWorker", "Worker"]


@runtime_checkable
class Worker(Protocol):
    """The engine's view of the device side, one worker or many behind one door."""

    def start(self, progress: Callable[[str, float], None] | None = None) -> WorkerFacts:
        """Load the model; `progress(stage, fraction)` is called now and then."""

    def allocate(self, config: KVCacheConfig) -> None:
        """Make the KV cache and warm up; called once after `start`."""

    def submit(self, plan: StepPlan) -> None:
        """Begin a step; returns at once."""

    def collect(self, timeout: float | None = None) -> StepResult | None:
        """Result of the oldest uncollected step; None when `timeout` (seconds) passed first."""

    def call(self, method: str, args: list[Any]) -> Any:
        """A named method on every worker (`health`, `memory`, `reset`); plain values only."""

    def shutdown(self) -> None:
        """Release everything; safe to repeat."""


@runtime_checkable
class WatchableWorker(Protocol):
    """What a worker may offer besides: its end can be noticed while no step is under way.

    Without it, a worker that dies idle is noticed with the next step.
    """

    def fileno(self) -> int:
        """A descriptor that becomes readable when a result came or the worker is gone."""
