"""Contract `policies`: order of waiting requests and choice of victims.

Owns: the Protocol and the frozen view it sees. The queues are core's. Version 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

__all__ = ["RequestView", "SchedulerPolicy"]


class RequestView(msgspec.Struct, frozen=True):
    """What a policy may know of a request. Times are seconds; `order` is the arrival number."""

    request_id: str
    order: int
    arrival_time: float
    priority: int
    tenant: str
    num_prompt_tokens: int
    num_computed_tokens: int
    num_output_tokens: int


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
