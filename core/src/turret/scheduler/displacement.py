"""Running requests that give way to a waiting one, where the policy wants that.

Owns: when the policy is asked and how often. Knows nothing of why one request should give way to another.

Each request gives way at most once, so every one makes progress whatever the policy says.
"""

from __future__ import annotations

from collections.abc import Callable

from turret.contracts import DisplacingPolicy
from turret.errors import PluginError
from turret.scheduler.admission import Admission
from turret.scheduler.draft import Draft
from turret.scheduler.progress import Progress, RankedList

__all__ = ["Displacement"]

_MOST_PER_STEP = 8
_ASK_AGAIN = 8
"""Steps for which the answer that nobody gives way to a request stands; asking costs a look at all that run."""


class Displacement:
    """Asks a policy before each step whether somebody gives way to the first waiting request."""

    def __init__(
        self, policy: DisplacingPolicy, admission: Admission, displace: Callable[[Progress, Progress], None]
    ) -> None:
        self._policy = policy
        self._admission = admission
        self._displace = displace
        self._refused: Progress | None = None
        self._count = 0

    def make_way(self, draft: Draft, waiting: RankedList, running: RankedList) -> None:
        """Preempt, one by one, those that give way, until the first waiting request can start or nobody does."""
        for _ in range(_MOST_PER_STEP):
            head = waiting[0]
            if head.gave_way or not len(running) or self._stands(head):
                return
            if not self._admission.blocked(head, draft, running):
                return
            victim = self._ask(head, running)
            if victim is None:
                self._refused, self._count = head, 0
                return
            self._displace(victim, head)

    def _stands(self, head: Progress) -> bool:
        self._count += 1
        return head is self._refused and self._count < _ASK_AGAIN

    def _ask(self, head: Progress, running: RankedList) -> Progress | None:
        by_id = {p.request_id: p for p in running}
        try:
            chosen = self._policy.pick_displaced(head.view(), [p.view() for p in running])
            if chosen is None:
                return None
            if not by_id[chosen].may_yield:
                raise ValueError(f"it chose {chosen!r}, which may not give way (again)")
            return by_id[chosen]
        except Exception as fault:
            raise PluginError(
                f"scheduling policy {self._policy.name!r} failed in pick_displaced: {type(fault).__name__}: {fault}; "
                "choose another with --scheduling-policy"
            ) from fault
