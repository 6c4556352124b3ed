"""The orders that core ships: first come first served, by priority, and fair between tenants.

Owns: their sort keys and choice of victims. Knows nothing of queues; these are plugins like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from turret.contracts import RequestView

__all__ = ["FairPolicy", "FcfsPolicy", "PriorityPolicy"]


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


class FairPolicy:
    """Tenants get equal shares: waiting requests in the order of their tenants' virtual time, and a tenant that has far
    more running than another gives a place up to it. Within a tenant, first come, first served.
    """

    api = "1.1"
    name = "fair"

    def sort_key(self, view: RequestView) -> tuple[Any, ...]:
        """(start in virtual time, arrival number)."""
        return (view.tenant_start, view.order)

    def pick_victim(self, running: Sequence[RequestView]) -> str:
        """The last request of the tenant that holds the most tokens; never the first of all, which gets done."""
        first = min(running, key=self.sort_key)
        held: Counter[str] = Counter()
        for view in running:
            held[view.tenant] += view.num_computed_tokens
        candidates = [view for view in running if view is not first] or [first]
        return max(candidates, key=lambda v: (held[v.tenant], v.tenant, self.sort_key(v))).request_id

    def pick_displaced(self, waiting: RequestView, running: Sequence[RequestView]) -> str | None:
        """Of the tenant with the most requests running, if it has at least two more than the waiting one's: first one
        that is still reading its prompt, since it holds up whoever comes after it; then the last.

        Two more, so that the two tenants do not take the place back and forth. A tenant with nothing running may also
        interrupt the reading of a prompt that has more to go than all of its own.
        """
        counts = Counter(view.tenant for view in running)
        mine = counts[waiting.tenant]
        others = [v for v in running if v.may_yield and v.tenant != waiting.tenant]
        fitting = [v for v in others if counts[v.tenant] >= mine + 2]
        if not fitting and mine == 0:
            fitting = [v for v in others if _unread(v) > waiting.num_prompt_tokens]
        if not fitting:
            return None
        best = max(fitting, key=lambda v: (counts[v.tenant], v.tenant, _unread(v) > 0, self.sort_key(v)))
        return best.request_id


def _unread(view: RequestView) -> int:
    """Prompt tokens still to compute."""
    return max(0, view.num_prompt_tokens - view.num_computed_tokens)
