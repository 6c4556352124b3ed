"""One forward: from inputs to sampled tokens, without touching the batch's state.

Owns: the model, the cache tensors, scratch memory, the sampler. Knows nothing of plans or of retries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.contracts import AttentionBackend, GraphRecorder, SplittingRecorder
from turret.messages import KVGroup, TokenLogprobs
from turret.nn import AttentionState, ForwardContext, Scratch
from turret.worker.graph import RecordedForward, Subject, record
from turret.worker.inputs import PromptRows, StepInputs
from turret.worker.loader import LoadedModel
from turret.worker.outside import OutsideAttention
from turret.worker.sampler import Sampled, Sampler
from turret.worker.sampling_rows import SamplingRows
from turret.worker.trials import TrialSteps

__all__ = ["Forward", "ForwardOutput"]

_PROMPT_LOGITS_BYTES = 64 << 20
"""Most memory for the logits of prompt tokens at a time."""


@dataclass(slots=True)
class ForwardOutput:
    """`sampled` per sampled request in the inputs' order; `prompts` by place in the plan."""

    sampled: list[Sampled]
    prompts: dict[int, list[TokenLogprobs]] = field(default_factory=dict)


class Forward:
    """Runs the model, or what was recorded of it. `groups` say which layers share metadata; the cache is set by
    `use_cache`."""

    def __init__(self, loaded: LoadedModel, backend: AttentionBackend, max_tokens: int, device: str) -> None:
        self._model = loaded.model
        self._backend = backend
        self._device = device
        self._groups: list[KVGroup] = loaded.model.kv_groups()
        self._scratch = Scratch(max_tokens, device)
        self._factory = loaded.factory
        self._ops = dict(loaded.factory.ops.ops)
        self._kv: list[Tensor] = []
        self._recorded: RecordedForward | None = None

    @property
    def groups(self) -> list[KVGroup]:
        """How the model's layers share the cache."""
        return self._groups

    @property
    def scratch_bytes(self) -> int:
        """Memory of buffers for the largest step, once a forward has run."""
        return sum(buffer.nbytes for buffer in self._scratch.buffers.values())

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

    def run(self, inputs: StepInputs, sampler: Sampler, state: SamplingRows) -> ForwardOutput:
        """The whole step."""
        hidden = self._model_forward(inputs) if self._recorded is None else self._recorded.run(inputs.bindings())
        output = ForwardOutput([])
        for rows in inputs.prompts:
            output.prompts[rows.place] = self._prompt(hidden, rows, sampler)
        if len(inputs.last_rows):
            logits = self._logits(_rows(hidden, inputs.last_rows))
            output.sampled = sampler.sample(logits, inputs.rows, state)
        return output

    def vocab_size(self, inputs: StepInputs) -> int:
        """Width of the logits, found by running a step."""
        return int(self._logits(_rows(self._model_forward(inputs), inputs.last_rows)).shape[1])

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

    def _logits(self, hidden: Tensor) -> NDArray[np.float32]:
        """Host logits [n, V]."""
        state = AttentionState(self._backend, self._kv, [])  # logits attend to nothing
        logits = self._model.logits(hidden, ForwardContext(self._ops, self._scratch, state))
        return np.ascontiguousarray(logits.to(device="cpu", dtype=torch.float32).numpy())

    def _prompt(self, hidden: Tensor, rows: PromptRows, sampler: Sampler) -> list[TokenLogprobs]:
        step = max(1, _PROMPT_LOGITS_BYTES // (4 * sampler.vocab_size))
        found: list[TokenLogprobs] = []
        for start in range(rows.start, rows.stop, step):
            stop = min(start + step, rows.stop)
            logits = self._logits(hidden[start:stop])
            targets = rows.targets[start - rows.start : stop - rows.start]
            found += sampler.prompt_logprobs(logits, targets, rows.count)
        return found


def _rows(hidden: Tensor, rows: NDArray[np.int64]) -> Tensor:
    """The rows to sample from; all of them, uncopied, when every token is its request's last."""
    if len(rows) == hidden.shape[0]:
        return hidden
    return hidden.index_select(0, torch.from_numpy(rows).to(hidden.device))
