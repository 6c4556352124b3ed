"""A forward that is recorded once, proven, and replayed in place of the model.

Owns: `record`, the proof that a replay does what the model does, and `RecordedForward`. Knows nothing of plans.

The proof: for every trial step the model runs over cleared pages; then scratch memory is filled with not-a-number,
the pages are cleared again, and the replay has to find the same bits. Whatever a forward did outside the recording is
missing from the replay and shows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from turret.contracts import GraphRecorder, Program, SplitProgram, StepBindings, Variation
from turret.errors import NotSupportedError
from turret.nn import Scratch
from turret.worker.inputs import StepInputs

__all__ = ["RecordedForward", "Subject", "Trial", "Trials", "buffer_of", "record"]

logger = logging.getLogger(__name__)

Trial = Callable[[], StepInputs]
"""Makes the inputs of a step; they hold until the next one is made."""


@dataclass(frozen=True, slots=True)
class Trials:
    """The steps of a recording: `proofs`, of which the first is what is recorded, and `varied`, which has another
    number of tokens than that. None has more than `max_tokens`."""

    proofs: Sequence[Trial]
    varied: Trial
    max_tokens: int


@dataclass(frozen=True, slots=True)
class RecordedForward:
    """`run(step)`: hidden states [T, H], a view of `hidden` [max tokens, H], as the model's forward would give."""

    program: Program
    hidden: Tensor

    @property
    def splits(self) -> list[str]:
        """What computes outside the recorded kernels, one entry for each place."""
        return list(self.program.splits) if isinstance(self.program, SplitProgram) else []

    def run(self, step: StepBindings) -> Tensor:
        self.program.replay(step)
        return self.hidden[: step.ids.shape[0]]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is recorded: `recorded`, which must do what `forward` does but may tell the recorder more, the scratch
    memory it lives in, and the cache pages that trials write to."""

    forward: Callable[[StepInputs], Tensor]
    recorded: Callable[[StepInputs], Tensor]
    scratch: Scratch
    pages: Sequence[Tensor]


def record(recorder: GraphRecorder, subject: Subject, trials: Trials) -> RecordedForward:
    """Record the first trial, prove all. Raises NotSupportedError with the reason why the model cannot be replayed."""
    began = time.perf_counter()
    inputs = trials.proofs[0]()
    found: list[Tensor] = []

    def again() -> tuple[Callable[[], object], StepBindings]:
        varied = trials.varied()
        return lambda: subject.recorded(varied), varied.bindings()

    program = recorder.record(
        lambda: found.append(subject.recorded(inputs)), inputs.bindings(), Variation(trials.max_tokens, again))
    recorded = RecordedForward(program, buffer_of(found[0], subject.scratch))
    took = time.perf_counter() - began
    for trial in trials.proofs:
        _prove(recorded, subject, trial())
    splits = f", split at {len(recorded.splits)} places ({recorded.splits[0]}, ...)" if recorded.splits else ""
    logger.info("forward recorded: %d kernels%s in %.1f ms, proven on %d steps in %.1f ms", program.steps, splits,
                took * 1e3, len(trials.proofs), (time.perf_counter() - began - took) * 1e3)
    return recorded


def buffer_of(hidden: Tensor, scratch: Scratch) -> Tensor:
    """The whole buffer that a forward's result is a part of."""
    for buffer in scratch.buffers.values():
        if buffer.data_ptr() == hidden.data_ptr() and buffer.stride() == hidden.stride():
            return buffer
    raise NotSupportedError("its result does not lie in scratch memory")


def _prove(recorded: RecordedForward, subject: Subject, inputs: StepInputs) -> None:
    _clear(subject.pages)
    expected = subject.forward(inputs).clone()
    _clear(subject.pages)
    for buffer in subject.scratch.buffers.values():
        buffer.fill_(float("nan") if buffer.is_floating_point() else -1)
    if not torch.equal(_bits(recorded.run(inputs.bindings())), _bits(expected)):
        raise NotSupportedError(f"a replay for {inputs.ids.shape[0]} tokens gives other numbers than the model")


def _clear(pages: Sequence[Tensor]) -> None:
    for page in pages:
        page.zero_()


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)
