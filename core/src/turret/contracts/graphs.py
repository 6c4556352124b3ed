"""Contract `platform`, optional part: forwards recorded once and replayed without Python between their ops.

Owns: the Protocols and the value they exchange. Knows no device. Version 1.0.

What makes a recording possible: a forward's buffers lie in scratch memory at fixed addresses, its ops write into what
they are given, and a step differs from another only in its number of tokens and in `StepBindings`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from turret.contracts.attention import AttentionBackend, AttentionBatch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GraphRecorder", "Program", "RecordingPlatform", "SplitProgram", "SplittingRecorder", "StepBindings",
           "Variation"]


@dataclass(frozen=True, slots=True)
class StepBindings:
    """What differs from step to step: `ids` and `positions` int64 [T], and group g's geometry `attention[g]`. A replay
    may bring other tensors than the recording, of the same dtypes and with as many groups."""

    ids: Tensor
    positions: Tensor
    attention: Sequence[AttentionBatch]


@runtime_checkable
class Program(Protocol):
    """One recorded forward. It borrows the model, its scratch memory and its cache: all must outlive it."""

    @property
    def steps(self) -> int:
        """Kernels that a replay runs."""

    def replay(self, step: StepBindings) -> None:
        """Do what the forward would do for this step, to the bit."""


@runtime_checkable
class SplitProgram(Program, Protocol):
    """A program in pieces, between which something else than the recorder's own kernels computes."""

    @property
    def splits(self) -> Sequence[str]:
        """What computes at each split, in order; empty where the program is one piece."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The same forward for another step: `again()` makes its inputs, which hold until the next are made, and returns
    the forward and the step. No step will have more tokens than `max_tokens`."""

    max_tokens: int
    again: Callable[[], tuple[Callable[[], object], StepBindings]]


@runtime_checkable
class GraphRecorder(Protocol):
    """Records forwards on one kind of device."""

    def record(self, forward: Callable[[], object], step: StepBindings, variation: Variation | None = None) -> Program:
        """Run `forward` for `step` and keep what it did. Raises NotSupportedError with the reason where the forward did
        anything that a replay would not repeat. A step of one token shows nothing of how a forward grows: it is refused
        unless `variation` says that there are no others. From a `variation` a recorder may learn how work that is not
        its own grows, and split the program around it. Who records compares the replay with the forward before using
        it."""


@runtime_checkable
class SplittingRecorder(GraphRecorder, Protocol):
    """A recorder that can be told of work which is not its own."""

    def records(self, backend: AttentionBackend) -> bool:
        """Whether the attention of this backend ends up in its programs."""

    def outside(
        self, name: str, work: Callable[[StepBindings, Sequence[Tensor]], None], tensors: Sequence[Tensor]
    ) -> None:
        """Within a recording: do `work(step, tensors)` now, and at this place of every replay with that step and its
        tensors. `tensors` are views of scratch memory."""


@runtime_checkable
class RecordingPlatform(Protocol):
    """A platform that can record forwards."""

    def graphs(self) -> GraphRecorder | None:
        """The recorder, or None where it cannot work here. May import torch."""
