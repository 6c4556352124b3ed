"""Steps that a worker runs before any request comes: one to see that the model runs, some to prove a recording.

Owns: their plans. Knows nothing of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from turret.messages import NewRequest, Request, StepPlan
from turret.sampling import SamplingParams
from turret.worker.batch import Batch
from turret.worker.graph import Trial, Trials
from turret.worker.inputs import InputBuilder, StepInputs

__all__ = ["TrialRequest", "TrialSteps", "trial_plan"]

_LONGEST = 7
"""Tokens of the longest trial step of one request: a prime, so that no other size is taken for a multiple of it."""


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A prompt of made-up tokens of which the first `cached` are taken for cached; its block in each group."""

    prompt: list[int]
    cached: int
    blocks: list[int]


def trial_plan(requests: list[TrialRequest]) -> StepPlan:
    """A step that runs what is not cached of every request."""
    return StepPlan(step_id=0, new=[_new(number, request) for number, request in enumerate(requests)])


def _new(number: int, trial: TrialRequest) -> NewRequest:
    request = Request(
        request_id=f"trial-{number}", prompt_token_ids=trial.prompt, sampling=SamplingParams(temperature=0.0),
        max_tokens=1, seed=0)  # fmt: skip
    return NewRequest(
        request=request, block_ids=[[block] for block in trial.blocks], num_computed_tokens=trial.cached,
        num_tokens=len(trial.prompt) - trial.cached)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrialSteps:
    """Steps over the first `num_blocks` blocks, none longer than `max_tokens`. The batch is empty before and after."""

    batch: Batch
    inputs: InputBuilder
    max_tokens: int
    num_blocks: int

    @property
    def blocks(self) -> int:
        """Blocks that the steps use, from number 0 on."""
        return min(self.num_blocks, 2 * self.batch.shape.num_groups + 1)

    def trials(self) -> Trials:
        """Proofs: some tokens of a prompt; one token; where there is room, one token of a longer context beside a
        prompt. The variation is a shorter prompt."""
        shape = self.batch.shape
        longest = min(_LONGEST, shape.block_size, shape.max_model_len, self.max_tokens)
        plans = [[self._request(0, longest, 0)]]
        if longest > 1:
            plans.append([self._request(0, 1, 0)])
        room = self.num_blocks > 2 * shape.num_groups and shape.max_num_seqs > 1
        if longest > 2 and room:
            plans.append([self._request(0, longest, longest - 1), self._request(1, longest - 2, 0)])
        varied = self._trial([self._request(0, max(1, longest - 2), 0)])
        return Trials([self._trial(plan) for plan in plans], varied, self.max_tokens)

    def _request(self, number: int, length: int, cached: int) -> TrialRequest:
        shape = self.batch.shape
        prompt = [(5 + 11 * number + 3 * i) % shape.vocab_size for i in range(length)]
        first = 1 + number * shape.num_groups
        blocks = [first + group if first + group < self.num_blocks else 0 for group in range(shape.num_groups)]
        return TrialRequest(prompt, cached, blocks)

    def _trial(self, requests: list[TrialRequest]) -> Trial:
        def build() -> StepInputs:
            work = self.batch.apply(trial_plan(requests))
            built = self.inputs.build(work, work.runnable())
            self.batch.clear()
            return built

        return build
