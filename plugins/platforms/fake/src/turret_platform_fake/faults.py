"""Ops that fail or dawdle on demand, so that faults of a forward can be tried without hardware.

Owns: the count of forwards, their least time and the moment of failure. Everything else runs on the reference ops.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from turret.contracts import LinearKernel
from turret.nn.ops import REFERENCE_OPS
from turret_platform_fake.options import FakeOptions

__all__ = ["FaultyOps"]


class FaultyOps:
    """Reference ops whose `embedding` (the first op of every forward) fails as the options say."""

    api = "1.0"
    name = "fake"

    def __init__(self, options: FakeOptions) -> None:
        self._options = options
        self._forwards = 0
        self._embedding = REFERENCE_OPS["embedding"]

    def ops(self) -> Mapping[str, Callable[..., None]]:
        """Only the op that fails."""
        return {"embedding": self._embed}

    def linear_kernels(self) -> Sequence[LinearKernel]:
        """None of its own."""
        return ()

    def _embed(self, out: Tensor, ids: Tensor, weight: Tensor, scale: float) -> None:
        self._forwards += 1
        time.sleep(self._options.step_seconds)
        if self._options.die_at_step == self._forwards:
            os.kill(os.getpid(), signal.SIGKILL)
        limit = self._options.out_of_memory_tokens
        if limit is not None and ids.shape[0] > limit:
            raise MemoryError(f"fake device: a forward over {ids.shape[0]} tokens does not fit ({limit} do)")
        self._embedding(out, ids, weight, scale)
