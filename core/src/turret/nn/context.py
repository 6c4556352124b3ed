"""What a forward is given besides tokens: ops, scratch memory, and the step's attention state.

Owns: `ForwardContext`, `Scratch`, `AttentionState`. Knows nothing of requests. Passed explicitly, never a global.

Scratch buffers are keyed and allocated once for the largest step, so that a forward always touches the same addresses:
that is what lets a platform record it once and replay it for any number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from turret.contracts.attention import AttentionBackend

__all__ = ["AttentionState", "ForwardContext", "Scratch"]


@dataclass(slots=True)
class Scratch:
    """Reusable buffers; rows (tokens) are the first dimension.

    `max_rows` rows are allocated at first use of a key; a larger request is an error of the caller.
    """

    max_rows: int
    device: str
    buffers: dict[str, Tensor] = field(default_factory=dict)

    def take(self, key: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The first `shape[0]` rows of the buffer `key`; contents are whatever was there."""
        buffer = self.buffers.get(key)
        if buffer is None:
            buffer = torch.empty((self.max_rows, *shape[1:]), dtype=dtype, device=self.device)
            self.buffers[key] = buffer
        if shape[0] > self.max_rows or buffer.shape[1:] != shape[1:] or buffer.dtype != dtype:
            raise ValueError(f"scratch {key!r} holds {tuple(buffer.shape)} {buffer.dtype}, asked for {shape} {dtype}")
        return buffer[: shape[0]]


@dataclass(slots=True)
class AttentionState:
    """Attention of one step: `kv[i]` is layer i's cache, `metadata[i]` its group's metadata from `backend.build`."""

    backend: AttentionBackend
    kv: list[Tensor]
    metadata: list[Any]


@dataclass(slots=True)
class ForwardContext:
    """Everything a layer may use in one step. `ops[name]` is the best provider's op."""

    ops: dict[str, Callable[..., None]]
    scratch: Scratch
    attention: AttentionState
