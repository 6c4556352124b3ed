"""Contract `policies`: order of waiting requests and choice of victims.

Owns: the Protocol and the frozen view it sees. The queues are core's. Version 1.1: `tenant_start`, `may_yield`
and `DisplacingPolicy` came with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

__all__ = ["DisplacingPolicy", "RequestView", "SchedulerPolicy"]


class RequestView(msgspec.Struct, frozen=True):
    """What a policy may know of a request. Times are seconds; `order` is the arrival number.

    `tenant_start` is the virtual time, in tokens, at which the request is due if every tenant gets an equal share
    (`turret.scheduler.tenants`); it changes only when the request goes back to the queue. `may_yield` is False for a
    request that gave way before or is about to end.
    """

    request_id: str
    order: int
    arrival_time: float
    priority: int
    tenant: str
    num_prompt_tokens: int
    num_computed_tokens: int
    num_output_tokens: int
    tenant_start: float = 0.0
    may_yield: bool = True


@runtime_checkable
class SchedulerPolicy(Protocol):
    """Pure functions of frozen views. Smaller keys run first; the victim is the request with the largest
    `victim_key`.
    """

    api: str
    name: str

    def sort_key(self, view: RequestView) -> tuple[Any, ...]:
        """Order of waiting requests, fixed while a request waits."""

    def pick_victim(self, running: Sequence[RequestView]) -> str:
        """Request id to preempt."""


@runtime_checkable
class DisplacingPolicy(SchedulerPolicy, Protocol):
    """A policy that may take the place of a running request for a waiting one."""

    def pick_displaced(self, waiting: RequestView, running: Sequence[RequestView]) -> str | None:
        """Request id, of one that may yield, to give way to `waiting`, which is first in the queue and cannot start;
        None: nobody. It goes back to the queue, behind `waiting`, and never gives way again."""
