"""Decoders of the block formats in vectorised torch.

Owns: the arithmetic, in the order of operations that makes the result bit for bit that of the `gguf` package. Knows no
layer and no file.

Every decoder takes blocks `uint8 [n, block.size]` and returns `float32 [n, block.values]`. Scales are float16 in the
block and widened before any product. Byte layouts are those of llama.cpp's ggml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from turret_quant_gguf.blocks import Block

__all__ = ["decode"]

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What a 4-bit code of the IQ4 formats stands for."""

ROWS_AT_ONCE = 1 << 22
"""Bytes decoded in one go: bounds the temporaries, which are several times the packed rows."""


def decode(block: Block, packed: Tensor) -> Tensor:
    """Float32 [N, K] of packed rows uint8 [N, row_bytes]."""
    rows, width = packed.shape
    if packed.dtype != torch.uint8 or width % block.size:
        raise ValueError(f"{block.name} rows are uint8 of a multiple of {block.size} bytes, not {packed.dtype} {width}")
    out = torch.empty((rows, width // block.size * block.values), dtype=torch.float32, device=packed.device)
    step = max(1, ROWS_AT_ONCE // max(1, width))
    decoder = DECODERS[block.name]
    for start in range(0, rows, step):
        part = packed[start : start + step]
        out[start : start + step] = decoder(part.reshape(-1, block.size)).reshape(part.shape[0], -1)
    return out


def _halves(data: Tensor) -> Tensor:
    """Float16 fields [n, 2m] uint8 -> float32 [n, m]."""
    return data.contiguous().view(torch.float16).float()


def _fields(data: Tensor, shifts: tuple[int, ...], width: int, mask: int) -> Tensor:
    """Bit fields of bytes in groups of `width`: for each group, all its bytes at the first shift, then at the next.

    [n, bytes] -> uint8 [n, bytes * len(shifts)].
    """
    groups = data.reshape(data.shape[0], -1, 1, width)
    shift = torch.tensor(shifts, dtype=torch.uint8, device=data.device).reshape(1, 1, -1, 1)
    return ((groups >> shift) & mask).reshape(data.shape[0], -1)


def _nibbles(data: Tensor, width: int) -> Tensor:
    return _fields(data, (0, 4), width, 0x0F)


def _fifth_bits(data: Tensor) -> Tensor:
    """32 bits in four bytes, least significant first -> uint8 [n, 32] of 0 or 16."""
    return _fields(data, tuple(range(8)), 1, 1) << 4


def _f32(blocks: Tensor) -> Tensor:
    return blocks.contiguous().view(torch.float32)


def _f16(blocks: Tensor) -> Tensor:
    return _halves(blocks)


def _bf16(blocks: Tensor) -> Tensor:
    return (blocks.contiguous().view(torch.int16).int() << 16).view(torch.float32)


def _q4_0(blocks: Tensor) -> Tensor:
    return _halves(blocks[:, :2]) * (_nibbles(blocks[:, 2:], 16).float() - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    scale, low = _halves(blocks[:, :2]), _halves(blocks[:, 2:4])
    return scale * _nibbles(blocks[:, 4:], 16).float() + low


def _q5_0(blocks: Tensor) -> Tensor:
    codes = _nibbles(blocks[:, 6:], 16) | _fifth_bits(blocks[:, 2:6])
    return _halves(blocks[:, :2]) * (codes.float() - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    codes = _nibbles(blocks[:, 8:], 16) | _fifth_bits(blocks[:, 4:8])
    return _halves(blocks[:, :2]) * codes.float() + _halves(blocks[:, 2:4])


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:].view(torch.int8).float() * _halves(blocks[:, :2])


def _scaled(codes: Tensor, scale: Tensor, low: Tensor | None = None) -> Tensor:
    """codes [n, 256] float; one scale (and one value to subtract) per group [n, groups]."""
    groups = codes.reshape(codes.shape[0], scale.shape[1], -1)
    product = scale[:, :, None] * groups
    if low is not None:
        product = product - low[:, :, None]
    return product.reshape(codes.shape)


def _q2_k(blocks: Tensor) -> Tensor:
    packed = blocks[:, :16]
    scale = _halves(blocks[:, 80:82]) * (packed & 0x0F).float()
    low = _halves(blocks[:, 82:84]) * (packed >> 4).float()
    return _scaled(_fields(blocks[:, 16:80], (0, 2, 4, 6), 32, 3).float(), scale, low)


def _q3_k(blocks: Tensor) -> Tensor:
    sixes = _nibbles(blocks[:, 96:104], 8) | (_fields(blocks[:, 104:108], (0, 2, 4, 6), 4, 3) << 4)
    scale = _halves(blocks[:, 108:110]) * (sixes.float() - 32)
    # A CLEAR bit of the mask means "minus four".
    clear = _fields(blocks[:, :32], tuple(range(8)), 32, 1) ^ 1
    return _scaled(_fields(blocks[:, 32:96], (0, 2, 4, 6), 32, 3).float() - 4 * clear.float(), scale)


def _six_bit_pairs(packed: Tensor) -> tuple[Tensor, Tensor]:
    """The 12 bytes of Q4_K and Q5_K -> eight scales and eight minima, float32 [n, 8] each."""
    first, second, mixed = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scale = torch.cat((first & 0x3F, (mixed & 0x0F) | ((first >> 2) & 0x30)), dim=1)
    low = torch.cat((second & 0x3F, (mixed >> 4) | ((second >> 2) & 0x30)), dim=1)
    return scale.float(), low.float()


def _q4_k(blocks: Tensor) -> Tensor:
    scale, low = _six_bit_pairs(blocks[:, 4:16])
    codes = _nibbles(blocks[:, 16:], 32).float()
    return _scaled(codes, _halves(blocks[:, :2]) * scale, _halves(blocks[:, 2:4]) * low)


def _q5_k(blocks: Tensor) -> Tensor:
    scale, low = _six_bit_pairs(blocks[:, 4:16])
    codes = _nibbles(blocks[:, 48:], 32) | (_fields(blocks[:, 16:48], tuple(range(8)), 32, 1) << 4)
    return _scaled(codes.float(), _halves(blocks[:, :2]) * scale, _halves(blocks[:, 2:4]) * low)


def _q6_k(blocks: Tensor) -> Tensor:
    scale = _halves(blocks[:, 208:210]) * blocks[:, 192:208].view(torch.int8).float()
    codes = _nibbles(blocks[:, :128], 64) | (_fields(blocks[:, 128:192], (0, 2, 4, 6), 32, 3) << 4)
    return _scaled(codes.float() - 32, scale)


def _iq4_codes(packed: Tensor) -> Tensor:
    table = torch.tensor(IQ4_VALUES, dtype=torch.float32, device=packed.device)
    return table[_nibbles(packed, 16).int()]


def _iq4_nl(blocks: Tensor) -> Tensor:
    return _halves(blocks[:, :2]) * _iq4_codes(blocks[:, 2:])


def _iq4_xs(blocks: Tensor) -> Tensor:
    high = _fields(blocks[:, 2:4], (0, 2, 4, 6), 1, 3)
    sixes = _fields(blocks[:, 4:8], (0, 4), 1, 0x0F) | (high << 4)
    return _scaled(_iq4_codes(blocks[:, 8:]), _halves(blocks[:, :2]) * (sixes.float() - 32))


DECODERS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType({
    "f32": _f32,
    "f16": _f16,
    "bf16": _bf16,
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q5_0": _q5_0,
    "q5_1": _q5_1,
    "q8_0": _q8_0,
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "iq4_nl": _iq4_nl,
    "iq4_xs": _iq4_xs,
})
