"""Reference ops of token embedding and rotary position, in plain torch.

Owns: `embedding`, `rotary`; signatures as `turret.contracts.ops`. Knows nothing of layers.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["embedding", "rotary"]


def embedding(out: Tensor, ids: Tensor, weight: Tensor, scale: float) -> None:
    """out[T, H] = weight[ids] * scale, ids [T] int64, weight [V, H]."""
    if weight.dtype == out.dtype:
        torch.index_select(weight, 0, ids, out=out)
    else:
        out.copy_(weight.index_select(0, ids))
    if scale != 1.0:
        out.mul_(scale)


def rotary(q: Tensor, k: Tensor, cos_sin: Tensor, positions: Tensor, interleaved: bool) -> None:
    """In place on the first R columns of each head; q [T, Hq, D], k [T, Hkv, D], cos_sin [P, R], positions [T].

    Pairs are (i, i + R/2), or (2i, 2i + 1) when `interleaved`. The rotation runs in float32.
    """
    rows = cos_sin.index_select(0, positions).unsqueeze(1)
    cos, sin = rows.chunk(2, dim=-1)
    rotated = cos_sin.shape[1]
    for heads in (q, k):
        part = heads[..., :rotated]
        if interleaved:
            first, second = part[..., ::2], part[..., 1::2]
        else:
            first, second = part.chunk(2, dim=-1)
        turned_first = first * cos - second * sin
        turned_second = second * cos + first * sin
        first.copy_(turned_first)
        second.copy_(turned_second)
