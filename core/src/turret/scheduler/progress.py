"""How far each request is, and lists of requests kept in a policy's order.

Owns: `Progress`, the scheduler's mutable record of one request, and `RankedList`. Knows nothing of steps or blocks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from turret.contracts import RequestView
from turret.messages import Request, TokenLogprobs
from turret.scheduler.tenants import Account

__all__ = ["Progress", "RankedList"]

_rank_of = attrgetter("rank")


class Progress:
    """One live request.

    `tokens` are the prompt and the outputs known so far. `num_tokens` counts them plus outputs that steps in flight
    will sample; `num_computed` counts tokens that are in the KV cache once all planned steps have run. A request is
    planned while num_tokens < `limit` (prompt + most outputs): the last output is never computed. `epoch` changes when
    the request leaves the running set, so that results of earlier steps are known as stale. `tenant_start` is a
    virtual time and `account` what its tenant was charged (`turret.scheduler.tenants`); `gave_way` says that another
    took its place once.
    """

    __slots__ = (
        "account", "epoch", "extra", "first_scheduled", "gave_way", "in_worker", "limit", "num_cached", "num_computed",
        "num_prompt", "num_tokens", "order", "prompt_logprobs", "rank", "request", "request_id", "running", "started",
        "stop_ids", "tenant_start", "tokens",
    )  # fmt: skip

    def __init__(self, request: Request, order: int, num_outputs: int) -> None:
        self.request = request
        self.request_id = request.request_id
        self.order = order
        self.rank: tuple[Any, ...] = ()
        self.account = Account(0.0, 0.0)
        self.tenant_start = 0.0
        self.gave_way = False
        self.tokens = list(request.prompt_token_ids)
        self.num_prompt = len(self.tokens)
        self.num_tokens = self.num_prompt
        self.num_computed = 0
        self.limit = self.num_prompt + num_outputs
        self.epoch = 0
        self.running = False
        self.in_worker = False
        self.started = False  # its first event has been given
        self.num_cached = 0
        self.first_scheduled: float | None = None
        self.prompt_logprobs: list[TokenLogprobs] = []
        sampling = request.sampling
        self.stop_ids = frozenset(request.stop_token_ids) | frozenset(
            () if sampling.ignore_eos else request.eos_token_ids
        )
        self.extra = (request.adapter, request.cache_salt)

    @property
    def reads_cache(self) -> bool:
        """Whether a prefix hit may spare computing: not while prompt log-probabilities are still owed."""
        sampling = self.request.sampling
        if sampling.prompt_logprobs is not None:
            return self.started and not sampling.skip_reading_prefix_cache
        return not sampling.skip_reading_prefix_cache

    @property
    def may_yield(self) -> bool:
        """Whether another may take its place: once, and not when its last token is in flight."""
        return not self.gave_way and self.num_tokens < self.limit

    def view(self) -> RequestView:
        """What a policy sees."""
        request = self.request
        return RequestView(
            request_id=request.request_id,
            order=self.order,
            arrival_time=request.arrival_time,
            priority=request.priority,
            tenant=request.tenant,
            num_prompt_tokens=self.num_prompt,
            num_computed_tokens=self.num_computed,
            num_output_tokens=len(self.tokens) - self.num_prompt,
            tenant_start=self.tenant_start,
            may_yield=self.may_yield,
        )

    def rewind(self) -> None:
        """Forget all computed tokens, and what is in flight; known outputs stay."""
        self.epoch += 1
        self.num_computed = 0
        self.num_tokens = len(self.tokens)
        self.running = False
        self.in_worker = False
        self.prompt_logprobs.clear()


class RankedList:
    """Requests by `rank`, a tuple that ends with the arrival number and is therefore unique."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[Progress] = []

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Progress]:
        return iter(self.items)

    def __getitem__(self, index: int) -> Progress:
        return self.items[index]

    def since(self, index: int) -> Sequence[Progress]:
        """Those from `index` on."""
        return self.items[index:]

    def add(self, progress: Progress) -> None:
        """Insert by rank."""
        insort(self.items, progress, key=_rank_of)

    def remove(self, progress: Progress) -> None:
        """Take out one that is in the list."""
        del self.items[bisect_left(self.items, progress.rank, key=_rank_of)]

    def clear(self) -> None:
        """Take out all."""
        self.items.clear()

    def pop(self, index: int) -> Progress:
        """Take out by position."""
        return self.items.pop(index)
