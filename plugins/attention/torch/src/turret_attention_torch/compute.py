"""The attention itself, for one gather of keys and values.

Owns: `attend`. Knows nothing of pages or steps.

Shapes: b independent problems, n queries each, L keys, Hq = Hkv * G heads, D head size, Dv value head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from turret_attention_torch.metadata import Sight

__all__ = ["Scoring", "attend"]


@dataclass(frozen=True, slots=True)
class Scoring:
    """How scores are made: `scale`, then `softcap` (0: none), then `slopes` [Hq] times distance; `sinks` [Hq] join the
    denominator."""

    scale: float
    softcap: float
    sinks: Tensor | None
    slopes: Tensor | None

    @property
    def plain(self) -> bool:
        return self.softcap == 0.0 and self.sinks is None and self.slopes is None


def attend(q: Tensor, k: Tensor, v: Tensor, sight: Sight, scoring: Scoring) -> Tensor:
    """[b, n, Hq, Dv] from q [b, n, Hq, D], k [b, L, Hkv, D], v [b, L, Hkv, Dv].

    The G heads that share a KV head become rows of one problem, so that keys and values are read once for all of them.
    """
    b, n, heads, size = q.shape
    kv_heads = k.shape[2]
    group = heads // kv_heads
    rows = q.view(b, n, kv_heads, group, size).permute(0, 2, 3, 1, 4).reshape(b, kv_heads, group * n, size)
    keys, values = k.transpose(1, 2), v.transpose(1, 2)
    if scoring.plain:
        mask = sight.mask(group, q.dtype)
        mixed = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scoring.scale)
    else:
        mixed = _written_out(rows, keys, values, sight, scoring)
    return mixed.reshape(b, kv_heads, group, n, -1).permute(0, 3, 1, 2, 4).reshape(b, n, heads, -1)


def _written_out(q: Tensor, k: Tensor, v: Tensor, sight: Sight, scoring: Scoring) -> Tensor:
    """Softmax attention in float32, step by step; q [b, Hkv, G * n, D], k [b, Hkv, L, D], v [b, Hkv, L, Dv]."""
    group = q.shape[2] // sight.visible.shape[1]
    scores = torch.matmul(q.float(), k.float().transpose(-1, -2)) * scoring.scale
    if scoring.softcap:
        scores = torch.tanh(scores / scoring.softcap) * scoring.softcap
    if scoring.slopes is not None:
        scores = scores + _per_row(scoring.slopes, scores) * sight.spread(sight.distance, group)
    scores = scores.masked_fill(sight.spread(~sight.visible, group), float("-inf"))
    peak = scores.amax(-1, keepdim=True)
    sinks = None if scoring.sinks is None else _per_row(scoring.sinks, scores)
    if sinks is not None:
        peak = torch.maximum(peak, sinks)
    weights = torch.exp(scores - peak)
    total = weights.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + torch.exp(sinks - peak)
    return torch.matmul(weights / total, v.float()).to(q.dtype)


def _per_row(per_head: Tensor, scores: Tensor) -> Tensor:
    """Values [Hq] as [1, Hkv, G * n, 1], the rows of `scores` [b, Hkv, G * n, L]."""
    kv_heads, rows = scores.shape[1], scores.shape[2]
    grouped = per_head.float().view(kv_heads, -1)
    return grouped.repeat_interleave(rows // grouped.shape[1], dim=1)[None, :, :, None]
