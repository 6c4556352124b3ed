"""Contracts `worker` and `executor`: who runs the forward, and where.

Owns: the Protocols between engine and workers, and what a platform is told that brings a worker of its own. Knows
neither queues nor tensors. Version 1.0.

`submit` and `collect` are apart so that step N+1 can be planned while N runs. Steps run in the order submitted and are
collected in that order. `collect` raises `EngineDeadError` when the worker is gone; a fault of one request is an
`error`
in its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from turret.messages import KVCacheConfig, StepPlan, StepResult, WorkerFacts

__all__ = ["WatchableWorker", "Worker", "WorkerOrder", "WorkerPlatform"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOrder:
    """What a worker of a platform's own has to serve. `encode` and `decode` are the model's tokenizer, loaded when
    first used: special tokens are read and written by their names, and none is added."""

    device_index: int
    vocab_size: int
    max_model_len: int
    block_size: int
    max_num_seqs: int
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]


@runtime_checkable
class WorkerPlatform(Protocol):
    """A platform that may bring the worker instead of running core's (contract `platform`, optional part): a device
    that takes whole requests, or one that only plays a model."""

    def worker(self, order: WorkerOrder) -> Worker | None:
        """The worker, not started; None: core's own serves this model."""
