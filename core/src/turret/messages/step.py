"""One step of the engine, as the scheduler plans it and the workers report it.

Owns: `StepPlan`, `StepResult` and their parts. Knows nothing of queues or tensors.

A plan sends a request whole once (`NewRequest`) and as diffs afterwards (`RunningRequest`). Sampled tokens never travel
back in a plan: the worker's persistent batch appends what it sampled, so that step N+1 can be planned while N runs.
"""

from __future__ import annotations

import msgspec

from turret.messages.kv import KVGroup
from turret.messages.request import Request, TokenLogprobs

__all__ = ["NewRequest", "RequestResult", "RunningRequest", "StepPlan", "StepResult", "WorkerFacts"]


class NewRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that enters (or, after preemption, re-enters) the worker's batch.

    `output_token_ids` holds what was generated before a preemption. `block_ids` is one list per KV group; an entry of 0
    is the null block: a page that lies out of a sliding window and is never read. `num_computed_tokens` tokens already
    lie in the cache (prefix hit). The step covers tokens [num_computed_tokens, num_computed_tokens + num_tokens).
    """

    request: Request
    block_ids: list[list[int]]
    num_computed_tokens: int
    num_tokens: int
    output_token_ids: list[int] = []


class RunningRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request already in the worker's batch: how many tokens it gets, and blocks appended per KV group."""

    request_id: str
    num_computed_tokens: int
    num_tokens: int
    new_block_ids: list[list[int]]


class StepPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to do in one step.

    `removed` names requests to drop from the batch first (finished, aborted or preempted). A request whose tokens of
    this step reach the end of what is known of it (prompt + output) is sampled from; others (chunks) are not.
    `num_prefill_tokens` counts tokens of the step that belong to prompts.
    """

    step_id: int
    new: list[NewRequest] = []
    running: list[RunningRequest] = []
    removed: list[str] = []

    @property
    def num_tokens(self) -> int:
        """Tokens the forward of this step covers."""
        return sum(n.num_tokens for n in self.new) + sum(r.num_tokens for r in self.running)


class RequestResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the step did for one request: no `token_ids` for a chunk that was not sampled from.

    `error` is a sentence; the request is dropped by the scheduler, others go on. `prompt_logprobs` are those of this
    chunk, one per prompt token whose predecessor lies in the chunk.
    """

    request_id: str
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    error: str | None = None


class StepResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Results of the plan with the same `step_id`, one per request of the plan, in plan order (new, then running)."""

    step_id: int
    results: list[RequestResult] = []
    forward_time: float = 0.0


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker knows once its model is loaded.

    `page_bytes` is one block of one layer; `kv_bytes` the memory it offers for pages; `groups` how its layers share.
    `num_blocks` follows from them unless overridden.
    """

    kv_bytes: int
    page_bytes: int
    block_size: int
    groups: list[KVGroup]
    vocab_size: int
    max_position: int
    weight_bytes: int
    device: str
    attention_backend: str
    load_seconds: float = 0.0

    @property
    def slots(self) -> int:
        """Page tensors: the largest number of layers in a group."""
        return max((len(g.layers) for g in self.groups), default=1)

    @property
    def num_blocks(self) -> int:
        """Blocks that `kv_bytes` holds."""
        return self.kv_bytes // max(1, self.page_bytes * self.slots)
