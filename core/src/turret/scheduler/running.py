"""The first half of a step: tokens for requests that already run.

Owns: chunk sizes, and making room by shrinking a chunk or preempting. Knows nothing of waiting requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turret.kv import KVCacheManager
from turret.messages import RunningRequest
from turret.scheduler.draft import Draft
from turret.scheduler.limits import SchedulerLimits
from turret.scheduler.progress import Progress, RankedList

__all__ = ["RunningPlanner", "chunk_size"]


def chunk_size(progress: Progress, start: int, draft: Draft, chunked: bool) -> int:
    """Tokens from `start` on that the step may give a request, before memory is asked; 0 when none.

    Without chunking a prompt goes whole or not at all; outputs that are recomputed after a preemption may still be cut,
    since prompt and outputs together may exceed any budget.
    """
    size = min(progress.num_tokens - start, draft.budget)
    if draft.long_prefill and size > draft.long_prefill:
        size = draft.long_prefill
    if not chunked and start + size < progress.num_prompt:
        return 0
    return size


class RunningPlanner:
    """Walks the running requests in rank order. Only those not yet planned can be preempted, so no plan is undone:
    since the walk follows the policy's order, the policy's worst is always among them."""

    def __init__(
        self,
        limits: SchedulerLimits,
        kv: KVCacheManager,
        choose_victim: Callable[[Sequence[Progress]], Progress],
        preempt: Callable[[Progress], None],
    ) -> None:
        self._chunked = limits.enable_chunked_prefill
        self._kv = kv
        self._choose_victim = choose_victim
        self._preempt = preempt

    def extend(self, draft: Draft, running: RankedList) -> None:
        """Plan tokens for as many running requests as budget and memory allow."""
        allocate, advance, items = self._kv.allocate, draft.advance, running.items
        index = 0
        while index < len(items) and draft.budget > 0:
            progress = items[index]
            if progress.num_tokens >= progress.limit:
                index += 1  # its last token is in flight
                continue
            start = progress.num_computed
            size = progress.num_tokens - start
            if size > 1:
                size = chunk_size(progress, start, draft, self._chunked)
                if self._chunked:
                    # A long prompt may stand before answers that began after it: each of them keeps its token.
                    size = min(size, max(1, draft.budget - (len(items) - index - 1)))
            blocks = allocate(progress.request_id, start, start + size)
            if blocks is None:
                blocks, size = self._make_room(draft, running, index, size)
                if blocks is None:
                    continue  # the request itself was preempted: another has its place in the list
            draft.running.append(RunningRequest(progress.request_id, start, size, blocks))
            draft.running_entries.append(advance(progress, size))
            index += 1

    def _make_room(
        self, draft: Draft, running: RankedList, index: int, size: int
    ) -> tuple[list[list[int]] | None, int]:
        """Cut the chunk to what is free; when nothing is, preempt until something is or the request itself is gone."""
        draft.held_back = True
        progress = running[index]
        start = progress.num_computed
        while (room := self._kv.room(progress.request_id, start, size)) == 0:
            victim = self._choose_victim(running.since(index))
            self._preempt(victim)
            if victim is progress:
                return None, 0
        return self._kv.allocate(progress.request_id, start, start + room), room
