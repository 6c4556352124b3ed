"""The two orders that core ships: first come first served, and by priority.

Owns: their sort keys and choice of victims. Knows nothing of queues; these are plugins like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turret.contracts import RequestView

__all__ = ["FcfsPolicy", "PriorityPolicy"]


class FcfsPolicy:
    """First come, first served; the last to arrive is preempted first."""

    api = "1.0"
    name = "fcfs"

    def sort_key(self, view: RequestView) -> tuple[Any, ...]:
        """By arrival number, which a preempted request keeps."""
        return (view.order,)

    def pick_victim(self, running: Sequence[RequestView]) -> str:
        """The last to arrive."""
        return max(running, key=self.sort_key).request_id


class PriorityPolicy:
    """A lower `priority` value runs first, then the earlier arrival; the worst by that order is preempted first."""

    api = "1.0"
    name = "priority"

    def sort_key(self, view: RequestView) -> tuple[Any, ...]:
        """(priority, arrival time, arrival number)."""
        return (view.priority, view.arrival_time, view.order)

    def pick_victim(self, running: Sequence[RequestView]) -> str:
        """The worst (priority, arrival)."""
        return max(running, key=self.sort_key).request_id
