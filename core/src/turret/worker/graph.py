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

from turret.contracts import GraphRecorder, Program, StepBindings
from turret.errors import NotSupportedError
from turret.nn import Scratch
from turret.worker.inputs import StepInputs

__all__ = ["RecordedForward", "Subject", "Trial", "buffer_of", "record"]

logger = logging.getLogger(__name__)

Trial = Callable[[], StepInputs]
"""Makes the inputs of a step; they hold until the next one is made."""


@dataclass(frozen=True, slots=True)
class RecordedForward:
    """`run(step)`: hidden states [T, H], a view of `hidden` [max tokens, H], as the model's forward would give."""

    program: Program
    hidden: Tensor

    def run(self, step: StepBindings) -> Tensor:
        self.program.replay(step)
        return self.hidden[: step.ids.shape[0]]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is recorded: `forward`, the scratch memory it lives in, and the cache pages that trials write to."""

    forward: Callable[[StepInputs], Tensor]
    scratch: Scratch
    pages: Sequence[Tensor]


def record(recorder: GraphRecorder, subject: Subject, trials: Sequence[Trial]) -> RecordedForward:
    """Record the first trial, prove all. Raises NotSupportedError with the reason why the model cannot be replayed."""
    began = time.perf_counter()
    inputs = trials[0]()
    found: list[Tensor] = []
    program = recorder.record(lambda: found.append(subject.forward(inputs)), inputs.bindings())
    recorded = RecordedForward(program, buffer_of(found[0], subject.scratch))
    took = time.perf_counter() - began
    for trial in trials:
        _prove(recorded, subject, trial())
    logger.info("forward recorded: %d kernels in %.1f ms, proven on %d steps in %.1f ms", program.steps, took * 1e3,
                len(trials), (time.perf_counter() - began - took) * 1e3)
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
        buffer.fill_(float("nan"))
    if not torch.equal(_bits(recorded.run(inputs.bindings())), _bits(expected)):
        raise NotSupportedError(f"a replay for {inputs.ids.shape[0]} tokens gives other numbers than the model")


def _clear(pages: Sequence[Tensor]) -> None:
    for page in pages:
        page.zero_()


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)
