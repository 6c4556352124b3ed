"""Attention of a backend whose work a recorder does not record.

Owns: `OutsideAttention`, which hands each layer's attention to the recorder as work between its kernels. Knows no
backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from turret.contracts import AttentionBackend, AttentionCall, SplittingRecorder, StepBindings

__all__ = ["OutsideAttention"]


class OutsideAttention:
    """Stands in for a backend while a forward is recorded. A layer's metadata is the number of its group: the real one
    is built for each step that runs, once for all layers."""

    def __init__(self, backend: AttentionBackend, recorder: SplittingRecorder) -> None:
        self._backend = backend
        self._recorder = recorder
        self._step: StepBindings | None = None
        self._metadata: Sequence[Any] = ()

    def run(self, call: AttentionCall) -> None:
        """Attend now, and at this place of every replay."""
        kept, group = replace(call), int(call.metadata)

        def attend(step: StepBindings, tensors: Sequence[Tensor]) -> None:
            kept.q, kept.k, kept.v, kept.out = tensors
            kept.metadata = self._built(step)[group]
            self._backend.run(kept)

        name = f"attention:{self._backend.name}"
        self._recorder.outside(name, attend, (call.q, call.k, call.v, call.out))

    def _built(self, step: StepBindings) -> Sequence[Any]:
        if step is not self._step:
            self._step, self._metadata = step, [self._backend.build(batch) for batch in step.attention]
        return self._metadata
