"""One forward: from inputs to sampled tokens, without touching the batch's state.

Owns: the model, the cache tensors, scratch memory, the sampler. Knows nothing of plans or of retries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.contracts import AttentionBackend, GraphRecorder, SplittingRecorder
from turret.errors import NotSupportedError
from turret.messages import KVGroup, TokenLogprobs
from turret.nn import AttentionState, ForwardContext, Scratch
from turret.nn.ops import REFERENCE
from turret.worker.graph import RecordedForward, Subject, record
from turret.worker.head import HeadRunner, HeadSetup
from turret.worker.inputs import PromptRows, StepInputs
from turret.worker.loader import LoadedModel
from turret.worker.outside import OutsideAttention
from turret.worker.sampler import Sampled, Sampler
from turret.worker.sampling_rows import SamplingRows
from turret.worker.setup import WorkerLimits
from turret.worker.stages import Stages, lap
from turret.worker.trials import TrialSteps

__all__ = ["Forward", "ForwardOutput"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ForwardOutput:
    """`sampled` per sampled request in the inputs' order; `prompts` by place in the plan."""

    sampled: list[Sampled]
    prompts: dict[int, list[TokenLogprobs]] = field(default_factory=dict)


class Forward:
    """Runs the model, or what was recorded of it. `groups` say which layers share metadata; the cache is set by
    `use_cache`."""

    def __init__(self, loaded: LoadedModel, backend: AttentionBackend, limits: WorkerLimits, device: str) -> None:
        self._model = loaded.model
        self._backend = backend
        self._device = device
        self._groups: list[KVGroup] = loaded.model.kv_groups()
        self._scratch = Scratch(limits.max_num_batched_tokens, device)
        self._factory = loaded.factory
        self._ops = dict(loaded.factory.ops.ops)
        self._kv: list[Tensor] = []
        self._recorded: RecordedForward | None = None
        nothing = AttentionState(backend, [], [])  # logits attend to nothing
        rows = min(limits.max_num_seqs, limits.max_num_batched_tokens)
        self._head = HeadRunner(HeadSetup(self._model, self._ops, rows, device, nothing))

    @property
    def groups(self) -> list[KVGroup]:
        """How the model's layers share the cache."""
        return self._groups

    @property
    def scratch_bytes(self) -> int:
        """Memory of buffers for the largest step, once a forward has run."""
        return sum(buffer.nbytes for buffer in self._scratch.buffers.values())

    @property
    def sample_op(self) -> Callable[..., None] | None:
        """The op `sample` of a provider, if one has it: its reference sorts, and is no way to serve."""
        ops = self._factory.ops
        return None if ops.origin["sample"] == REFERENCE else ops.ops["sample"]

    def use_cache(self, kv: list[Tensor]) -> None:
        """Take each layer's cache tensor; what was recorded over another cache is forgotten."""
        self._kv = kv
        self._recorded = None

    def record(self, recorder: GraphRecorder, steps: TrialSteps) -> None:
        """Record the model over the cache as it is now. Raises NotSupportedError if it cannot be replayed."""
        pages = [tensor[: steps.blocks] for tensor in self._kv]
        forward = recorded = self._model_forward
        if isinstance(recorder, SplittingRecorder) and not recorder.records(self._backend):
            attention = cast(AttentionBackend, OutsideAttention(self._backend, recorder))
            state = AttentionState(attention, self._kv, self._group_of_layer())
            recorded = partial(self._model_forward, state=state)
        self._recorded = record(recorder, Subject(forward, recorded, self._scratch, pages), steps.trials())
        try:
            self._head.record(recorder, self._recorded.hidden)
        except NotSupportedError as error:
            logger.info("the head runs op by op: %s", error)

    def explain(self) -> dict[str, Any]:
        """Who computes what: providers of `ops`, weights of each `linear` kernel, `attention`; `recorded_kernels` of a
        replay, None when the model runs op by op; `splits`: what runs on torch between them, for each place."""
        recorded = self._recorded
        return {
            "ops": dict(self._factory.ops.origin),
            "linear": self._factory.linear_kernels,
            "attention": self._backend.name,
            "recorded_kernels": None if recorded is None else recorded.program.steps,
            "splits": [] if recorded is None else recorded.splits,
        }

    def run(
        self, inputs: StepInputs, sampler: Sampler, state: SamplingRows, stages: Stages | None = None
    ) -> ForwardOutput:
        """The whole step."""
        state.follow()
        hidden = self._model_forward(inputs) if self._recorded is None else self._recorded.run(inputs.bindings())
        lap(stages, "forward")
        output = ForwardOutput([])
        for rows in inputs.prompts:
            output.prompts[rows.place] = self._prompt(hidden, rows, sampler)
        if len(inputs.last_rows):
            best = self._best(hidden, inputs, state)
            if best is not None:
                lap(stages, "logits")
                output.sampled = sampler.chosen(*best)
            else:
                logits = self._logits(hidden, inputs)
                lap(stages, "logits")
                output.sampled = sampler.sample(logits, inputs.rows, state)
            lap(stages, "sampling")
        return output

    def vocab_size(self, inputs: StepInputs) -> int:
        """Width of the logits, found by running a step."""
        return int(self._head.logits(_rows(self._model_forward(inputs), inputs.last_rows)).shape[1])

    def _best(
        self, hidden: Tensor, inputs: StepInputs, state: SamplingRows
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """Tokens and their logits where the head itself can choose: recorded, and every row wants the most likely."""
        if not self._head.reads(hidden) or not state.all_simple(inputs.rows):
            return None
        return self._head.best_of(inputs.last_rows)

    def _logits(self, hidden: Tensor, inputs: StepInputs) -> NDArray[np.float32]:
        """Host logits of the rows that are sampled from."""
        if self._head.reads(hidden):
            return self._head.logits_of(inputs.last_rows)
        return self._head.logits(_rows(hidden, inputs.last_rows))

    def _model_forward(self, inputs: StepInputs, state: AttentionState | None = None) -> Tensor:
        ctx = ForwardContext(self._ops, self._scratch, state or self._attention(inputs))
        return self._model.forward(inputs.ids, inputs.positions, ctx)

    def _attention(self, inputs: StepInputs) -> AttentionState:
        metadata: list[Any] = [None] * len(self._kv)
        for group, batch in zip(self._groups, inputs.attention, strict=True):
            built = self._backend.build(batch)
            for layer in group.layers:
                metadata[layer] = built
        return AttentionState(self._backend, self._kv, metadata)

    def _group_of_layer(self) -> list[Any]:
        found: list[Any] = [None] * len(self._kv)
        for number, group in enumerate(self._groups):
            for layer in group.layers:
                found[layer] = number
        return found

    def _prompt(self, hidden: Tensor, rows: PromptRows, sampler: Sampler) -> list[TokenLogprobs]:
        step = self._head.max_rows
        found: list[TokenLogprobs] = []
        for start in range(rows.start, rows.stop, step):
            stop = min(start + step, rows.stop)
            logits = self._head.logits(hidden[start:stop])
            targets = rows.targets[start - rows.start : stop - rows.start]
            found += sampler.prompt_logprobs(logits, targets, rows.count)
        return found


def _rows(hidden: Tensor, rows: NDArray[np.int64]) -> Tensor:
    """The rows to sample from; all of them, uncopied, when every token is its request's last."""
    if len(rows) == hidden.shape[0]:
        return hidden
    return hidden.index_select(0, torch.from_numpy(rows).to(hidden.device))
