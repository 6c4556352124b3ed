"""Contract `platform`, optional part: forwards recorded once and replayed without Python between their ops.

Owns: the Protocols and the value they exchange. Knows no device. Version 1.0.

What makes a recording possible: a forward's buffers lie in scratch memory at fixed addresses, its ops write into what
they are given, and a step differs from another only in its number of tokens and in `StepBindings`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from turret.contracts.attention import AttentionBatch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GraphRecorder", "Program", "RecordingPlatform", "StepBindings"]


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
class GraphRecorder(Protocol):
    """Records forwards on one kind of device."""

    def record(self, forward: Callable[[], object], step: StepBindings) -> Program:
        """Run `forward` for `step`, of two tokens or more, and keep what it did. Raises NotSupportedError with the
        reason where the forward did anything that a replay would not repeat. Who records compares the replay with the
        forward before using it."""


@runtime_checkable
class RecordingPlatform(Protocol):
    """A platform that can record forwards."""

    def graphs(self) -> GraphRecorder | None:
        """The recorder, or None where it cannot work here. May import torch."""
