"""Memory for large tensors that live only while a layer loads.

Owns: `staging`. Knows no layer.

The allocator of the C library may keep what such tensors leave behind (an aligned block that is freed between two
living ones is too short for its like), so that a load of many layers would hold nearly every stacked weight twice. A
mapping of its own goes back to the system as soon as its tensor does.
"""

from __future__ import annotations

import math
import mmap

import torch
from torch import Tensor

__all__ = ["staging"]

_SMALL_BYTES = 64 << 10
"""Below it a mapping costs more than it gives back."""


def staging(shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu") -> Tensor:
    """An uninitialised tensor. On CPUs the system has its memory back when the last view of it is gone."""
    size = math.prod(shape) * dtype.itemsize
    if size < _SMALL_BYTES or torch.device(device).type != "cpu" or not hasattr(mmap, "MAP_ANONYMOUS"):
        return torch.empty(shape, dtype=dtype, device=device)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype).reshape(shape)
