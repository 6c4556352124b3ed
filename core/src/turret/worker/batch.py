"""The persistent batch: what the worker remembers of each request between steps.

Owns: rows of token ids, block tables and sampling state, changed by the diffs of a `StepPlan`. Sole writer of them.
Knows nothing of the model or of queues.

A request keeps its row as long as it stays in the batch. Sampled tokens are appended here and never travel back in a
plan, so step N+1 can be planned while N runs. A request that failed stays as failed until the plan removes it: steps
that were planned before its failure was known get the same error again and touch nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from turret.messages import NewRequest, RunningRequest, StepPlan
from turret.worker.grammars import Grammars
from turret.worker.sampling_rows import SamplingRows

__all__ = ["Batch", "BatchShape", "StepWork"]

_SPARE_TOKENS = 8
"""Columns past the longest context: a step planned ahead may sample once more for a request that just ended."""


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Bounds of the batch: requests, tokens per request, the KV pool's block size and number of groups, and token ids
    (kernels read embeddings without a look at the bounds)."""

    max_num_seqs: int
    max_model_len: int
    block_size: int
    num_groups: int
    vocab_size: int


@dataclass(slots=True)
class StepWork:
    """One step in plan order: `rows`, `computed` (tokens already cached) and `counts` (tokens to run) per request.

    `errors` maps positions in the plan to sentences; those requests are not run.
    """

    request_ids: list[str]
    rows: NDArray[np.int64]
    computed: NDArray[np.int64]
    counts: NDArray[np.int64]
    errors: dict[int, str] = field(default_factory=dict)

    def runnable(self) -> NDArray[np.int64]:
        """Positions in the plan that are to be run."""
        every = np.arange(len(self.request_ids))
        return every if not self.errors else np.array([i for i in every if i not in self.errors], dtype=np.int64)


class Batch:
    """All requests between their first step and their removal.

    `tokens` int32 [rows, columns]; `known` and `num_prompt` int64 [rows] count prompt + output and prompt tokens;
    `tables[g]` int32 [rows, M] are group g's block tables; `prompt_logprobs` maps rows that want them to how many.
    """

    def __init__(self, shape: BatchShape, grammars: Grammars | None = None) -> None:
        rows, self._columns = shape.max_num_seqs, shape.max_model_len + _SPARE_TOKENS
        self.shape = shape
        self.tokens: NDArray[np.int32] = np.zeros((rows, self._columns), dtype=np.int32)
        self.known: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        self.num_prompt: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        blocks = -(-self._columns // shape.block_size)
        self.tables: list[NDArray[np.int32]] = [np.zeros((rows, blocks), dtype=np.int32)
                                                for _ in range(shape.num_groups)]
        self.sampling = SamplingRows(rows, shape.vocab_size, grammars)
        self.prompt_logprobs: dict[int, int] = {}
        self._num_blocks: list[list[int]] = [[0] * rows for _ in range(shape.num_groups)]
        self._row_of: dict[str, int] = {}
        self._free = list(range(rows - 1, -1, -1))
        self._failed: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def apply(self, plan: StepPlan) -> StepWork:
        """Bring the batch up to date with a plan and say what to run."""
        for request_id in plan.removed:
            self._remove(request_id)
        work = _empty_work(plan)
        for place, new in enumerate(plan.new):
            error = self._reason_not_to_add(new)
            if error is None:
                work.rows[place] = self._add(new)
            else:
                work.errors[place] = error
        for place, running in enumerate(plan.running, start=len(plan.new)):
            row = self._row_of.get(running.request_id)
            if row is None:
                work.errors[place] = f"request {running.request_id!r} is not in the worker's batch"
                continue
            work.rows[place] = row
            self._extend(row, running)
        self._refuse(work)
        return work

    def append(self, rows: NDArray[np.int64], tokens: Sequence[int]) -> None:
        """Add one sampled token to each of `rows`."""
        self.tokens[rows, self.known[rows]] = tokens
        self.known[rows] += 1
        self.sampling.append(rows.tolist(), tokens)

    def fail(self, row: int, error: str) -> None:
        """Mark a row as failed: nothing more is run for it."""
        self._failed[row] = error

    def clear(self) -> None:
        """Forget every request."""
        for request_id in list(self._row_of):
            self._remove(request_id)

    def _reason_not_to_add(self, new: NewRequest) -> str | None:
        self._remove(new.request.request_id)
        prompt = new.request.prompt_token_ids
        known = len(prompt) + len(new.output_token_ids)
        if known > self.shape.max_model_len or not self._free:
            return (f"request {new.request.request_id!r} does not fit the worker's batch: {known} tokens of at most "
                    f"{self.shape.max_model_len}, {len(self._row_of)} requests of at most {self.shape.max_num_seqs}")
        if prompt and not 0 <= min(prompt) <= max(prompt) < self.shape.vocab_size:
            return f"the prompt holds token ids outside the vocabulary of {self.shape.vocab_size} tokens"
        return None

    def _add(self, new: NewRequest) -> int:
        request = new.request
        known = len(request.prompt_token_ids) + len(new.output_token_ids)
        row = self._free.pop()
        self._row_of[request.request_id] = row
        self.tokens[row, :known] = request.prompt_token_ids + new.output_token_ids
        self.known[row] = known
        self.num_prompt[row] = len(request.prompt_token_ids)
        for group, blocks in enumerate(new.block_ids):
            self.tables[group][row, : len(blocks)] = blocks
            self._num_blocks[group][row] = len(blocks)
        self.sampling.set(row, request, new.output_token_ids)
        if request.sampling.prompt_logprobs is not None and not new.output_token_ids:
            self.prompt_logprobs[row] = request.sampling.prompt_logprobs
        return row

    def _extend(self, row: int, running: RunningRequest) -> None:
        for group, blocks in enumerate(running.new_block_ids):
            if blocks:
                held = self._num_blocks[group][row]
                self.tables[group][row, held : held + len(blocks)] = blocks
                self._num_blocks[group][row] = held + len(blocks)

    def _remove(self, request_id: str) -> None:
        row = self._row_of.pop(request_id, None)
        if row is None:
            return
        self._failed.pop(row, None)
        self.prompt_logprobs.pop(row, None)
        self.sampling.clear(row)
        self._free.append(row)

    def _refuse(self, work: StepWork) -> None:
        """Note the requests of a step that cannot run: failed before, or planned past what is known of them."""
        if self._failed:
            for place, row in enumerate(work.rows.tolist()):
                if row in self._failed:
                    work.errors.setdefault(place, self._failed[row])
        ahead = work.computed + work.counts > np.minimum(self.known[work.rows], self.shape.max_model_len)
        for place in np.flatnonzero(ahead | (work.counts < 1)).tolist():
            work.errors.setdefault(place, f"the step asks for {work.counts[place]} tokens after "
                                          f"{work.computed[place]}, of {self.known[work.rows[place]]} known")


def _empty_work(plan: StepPlan) -> StepWork:
    parts: list[NewRequest | RunningRequest] = [*plan.new, *plan.running]
    return StepWork(
        request_ids=[n.request.request_id for n in plan.new] + [r.request_id for r in plan.running],
        rows=np.zeros(len(parts), dtype=np.int64),
        computed=np.array([p.num_computed_tokens for p in parts], dtype=np.int64),
        counts=np.array([p.num_tokens for p in parts], dtype=np.int64),
    )
