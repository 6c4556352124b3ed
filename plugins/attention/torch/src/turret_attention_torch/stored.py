"""How keys and values lie in pages of each cache type.

Owns: widths, rounding and scales. Knows nothing of pages' owners or of attention.

A token's entry for one head is [key, value] side by side. Plain types hold the numbers; fp8 the nearest that the type
has, never beyond its range; int8 multiples of a 127th of the largest magnitude of each token and head, whose two scales
(float32, of key and value) stand behind the numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["SIZES", "decode", "encode", "entry_width", "raw"]

SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1}
"""Bytes of a number, by the cache type's torch name."""

SCALES = 8
"""Bytes of int8's two scales."""


def entry_width(stored: str, size: int, value_size: int) -> int:
    """Elements of a token's entry for one head."""
    return size + value_size + (SCALES if stored == "int8" else 0)


def raw(kv: Tensor) -> Tensor:
    """The cache as entries are copied: types of one byte as bytes, since torch copies no fp8 by index."""
    return kv.view(torch.uint8) if kv.element_size() == 1 else kv


def encode(k: Tensor, v: Tensor, dtype: torch.dtype) -> Tensor:
    """Entries [T, Hkv, W] of k [T, Hkv, D] and v [T, Hkv, Dv] for a cache of `dtype`."""
    if dtype == torch.int8:
        (keys, key_scales), (values, value_scales) = _scaled(k), _scaled(v)
        return torch.cat([keys, values, key_scales, value_scales], dim=-1)
    both = torch.cat([k, v], dim=-1)
    if dtype.itemsize == 1:
        limits = torch.finfo(dtype)
        return both.float().clamp(limits.min, limits.max).to(dtype).view(torch.uint8)
    return both.to(dtype)


def decode(entries: Tensor, dtype: torch.dtype, size: int, to: torch.dtype) -> tuple[Tensor, Tensor]:
    """Keys and values of entries [..., W], in the dtype `to`; `size` is D."""
    if dtype == torch.int8:
        numbers = entries[..., :-SCALES].view(torch.int8)
        scales = entries[..., -SCALES:].contiguous().view(torch.float32)
        k, v = numbers[..., :size] * scales[..., :1], numbers[..., size:] * scales[..., 1:]
        return k.to(to), v.to(to)
    found = entries.view(dtype).to(to)
    return found[..., :size], found[..., size:]


def _scaled(x: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes of the numbers and of their scales [T, Hkv, 4]; a scale is none where a number is none."""
    scale = x.float().abs().amax(-1, keepdim=True) / 127
    numbers = torch.nan_to_num(torch.round(x.float() / scale), nan=0.0).to(torch.int8)
    return numbers.view(torch.uint8), scale.contiguous().view(torch.uint8)
