"""The second half of a step: waiting requests that may start.

Owns: when a waiting request is admitted, skipped or waited for. Knows nothing of preemption: a step that ran short of
memory does not come here.

A waiting request that lacks memory or budget blocks those behind it, or it would starve. One that only lacks a place
among the partly processed prompts is skipped: that limit exists to let short prompts pass long ones.
"""

from __future__ import annotations

import time
from enum import Enum

from turret.errors import EngineError
from turret.kv import KVCacheManager, PrefixHit
from turret.messages import NewRequest
from turret.scheduler.draft import Draft
from turret.scheduler.limits import SchedulerLimits
from turret.scheduler.progress import Progress, RankedList
from turret.scheduler.running import chunk_size

__all__ = ["Admission"]

_SCAN_LIMIT = 128
"""How far a step looks past skipped requests."""
_ASK_AGAIN = 8
"""Steps after which a request that lacked memory is looked at again though there is no more of it."""


class _Verdict(Enum):
    ADMIT = 0
    SKIP = 1
    WAIT = 2


class _Refusal:
    """The last request that lacked memory. Asking again is not free (a prefix lookup over its whole prompt), so the
    answer stands until there is more memory; now and then it is looked at again, since others may have computed its
    prefix meanwhile. It does not stand once the request could run alone (`available` None)."""

    __slots__ = ("_available", "_count", "_progress")

    def __init__(self, progress: Progress | None = None, available: int | None = None) -> None:
        self._progress = progress
        self._available = available
        self._count = 0

    def stands(self, progress: Progress, available: int | None) -> bool:
        """Whether the answer to `progress` would still be no."""
        if progress is not self._progress or available is None or self._available is None:
            return False
        self._count += 1
        return available <= self._available and self._count < _ASK_AGAIN


class Admission:
    """Moves requests from the waiting to the running list."""

    def __init__(self, limits: SchedulerLimits, kv: KVCacheManager) -> None:
        self._limits = limits
        self._kv = kv
        self._refusal = _Refusal()

    def admit(self, draft: Draft, waiting: RankedList, running: RankedList) -> None:
        """Start what fits into the draft."""
        if draft.budget == 0 or len(running) >= self._limits.max_num_seqs:
            return
        # With budget left every unfinished prompt has its part in the draft; without one nothing is promised.
        promised = sum(self._promised(p, draft) for p in running) if draft.partials else 0
        index = 0
        while draft.budget > 0 and len(running) < self._limits.max_num_seqs and index < min(len(waiting), _SCAN_LIMIT):
            progress = waiting[index]
            available = self._available(promised, len(running))
            if self._refusal.stands(progress, available):
                break
            hit = self._match(progress)
            size, verdict = self._judge(progress, hit, draft, available)
            if verdict is _Verdict.WAIT:
                break
            if verdict is _Verdict.SKIP:
                index += 1
                continue
            waiting.pop(index)
            self._start(progress, hit, size, draft)
            promised += self._promised(progress, draft)
            running.add(progress)

    def blocked(self, head: Progress, draft: Draft, running: RankedList) -> bool:
        """Whether the first waiting request could not start in the coming step as things stand; nothing is planned yet.

        Short of places, of tokens after those that run have had theirs, of places among unfinished prompts, or of
        memory.
        """
        if len(running) >= self._limits.max_num_seqs:
            return True
        left, partials = draft.budget, 0
        for progress in running:
            rest = progress.num_tokens - progress.num_computed
            size = min(rest, draft.long_prefill or rest)
            left -= size
            partials += rest > size
        if left <= 0 or (partials >= self._limits.max_num_partial_prefills and head.num_tokens > left):
            return True
        available = self._available(sum(self._promised(p, draft) for p in running), len(running))
        if available is None or self._kv.blocks_needed(head.num_tokens, self._largest_chunk(draft)) <= available:
            return False
        hit = self._match(head)
        return self._needed(head, hit, draft) > available

    def _needed(self, progress: Progress, hit: PrefixHit | None, draft: Draft) -> int:
        """Free blocks it takes to bring a waiting request through its prompt."""
        needed = self._kv.blocks_needed(progress.num_tokens, self._largest_chunk(draft))
        if hit is not None:
            shared = sum(1 for ids in hit.block_ids for b in ids if b)
            needed += self._kv.num_idle(hit) - shared
        return needed

    def _match(self, progress: Progress) -> PrefixHit | None:
        if not progress.reads_cache:
            return None
        return self._kv.match(progress.request_id, progress.tokens, progress.extra)

    def _available(self, promised: int, num_running: int) -> int | None:
        """Free blocks a newcomer may count on: what running prompts still need and one block for each running request
        are theirs, so that admitting does not provoke a preemption. None when nobody runs: then all is free."""
        return self._kv.num_free - promised - num_running if num_running else None

    def _promised(self, progress: Progress, draft: Draft) -> int:
        """Blocks a running request still needs to get through its prompt."""
        if progress.num_computed >= progress.num_tokens - 1:
            return 0
        return self._kv.outstanding(progress.request_id, progress.num_tokens, self._largest_chunk(draft))

    def _largest_chunk(self, draft: Draft) -> int:
        return min(draft.size, draft.long_prefill or draft.size)

    def _judge(
        self, progress: Progress, hit: PrefixHit | None, draft: Draft, available: int | None
    ) -> tuple[int, _Verdict]:
        """How many tokens the request would get, and whether it gets them now."""
        start = hit.num_tokens if hit is not None else 0
        size = chunk_size(progress, start, draft, self._limits.enable_chunked_prefill)
        if size == 0:
            return 0, _Verdict.WAIT
        if start + size < progress.num_tokens and not self._may_be_partial(progress, draft):
            return 0, _Verdict.SKIP
        if available is None:
            return self._fit_alone(progress, hit, size), _Verdict.ADMIT
        if self._needed(progress, hit, draft) <= available:
            return size, _Verdict.ADMIT
        self._refusal = _Refusal(progress, available)
        return 0, _Verdict.WAIT

    def _may_be_partial(self, progress: Progress, draft: Draft) -> bool:
        limits = self._limits
        if draft.partials >= limits.max_num_partial_prefills:
            return False
        return not draft.is_long(progress) or draft.longs < limits.max_long_partial_prefills

    def _fit_alone(self, progress: Progress, hit: PrefixHit | None, size: int) -> int:
        """The chunk, cut to an otherwise unused pool. It is never 0: what cannot run alone was refused on arrival."""
        room = self._kv.room_for(hit, size)
        if room == 0:
            raise EngineError(f"request {progress.request_id!r} does not fit into an empty KV cache, but was accepted")
        return room

    def _start(self, progress: Progress, hit: PrefixHit | None, size: int, draft: Draft) -> None:
        """Give blocks and enter the plan."""
        start = hit.num_tokens if hit is not None else 0
        first = progress.first_scheduled is None
        queried = progress.num_tokens if first and progress.reads_cache else 0
        self._kv.begin(progress.request_id, hit, progress.extra, queried)
        if self._kv.allocate(progress.request_id, start, start + size) is None:
            raise EngineError(f"the KV cache refused request {progress.request_id!r} {size} tokens that it had offered")
        if first:
            progress.first_scheduled = time.time()
            progress.num_cached = start
        progress.running = progress.in_worker = True
        progress.num_computed = start
        draft.new.append(
            NewRequest(
                request=progress.request,
                block_ids=self._kv.block_ids(progress.request_id),
                num_computed_tokens=start,
                num_tokens=size,
                output_token_ids=progress.tokens[progress.num_prompt :],
            )
        )
        draft.new_entries.append(draft.advance(progress, size))
