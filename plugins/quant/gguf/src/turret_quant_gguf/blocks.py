"""The table of block formats of llama.cpp that this plugin reads.

Owns: names, block sizes and what a `QuantSpec` says of each format. Knows no torch and no decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from turret.contracts import QuantSpec

__all__ = ["BLOCKS", "PACKING", "PLAIN_NAMES", "Block", "block_named", "spec_of"]

PACKING = "ggml"
"""Rows of whole blocks, the bytes of the file: `uint8 [N, K / block.values * block.size]`."""


@dataclass(frozen=True, slots=True)
class Block:
    """One format: `values` weights share a block of `size` bytes; `group` of them share a scale."""

    name: str
    values: int
    size: int
    group: int
    offset: bool = False

    @property
    def bits(self) -> float:
        """Bits per weight, scales included."""
        return self.size * 8 / self.values

    def row_bytes(self, in_features: int) -> int:
        """Bytes of one row; raises ValueError if the row is not a whole number of blocks."""
        if in_features % self.values:
            raise ValueError(f"a row of {in_features} values is no whole number of {self.name} blocks of {self.values}")
        return in_features // self.values * self.size


BLOCKS: Mapping[str, Block] = MappingProxyType({
    block.name: block
    for block in (
        Block("f32", 1, 4, 1),
        Block("f16", 1, 2, 1),
        Block("bf16", 1, 2, 1),
        Block("q4_0", 32, 18, 32),
        Block("q4_1", 32, 20, 32, offset=True),
        Block("q5_0", 32, 22, 32),
        Block("q5_1", 32, 24, 32, offset=True),
        Block("q8_0", 32, 34, 32),
        Block("q2_k", 256, 84, 16, offset=True),
        Block("q3_k", 256, 110, 16),
        Block("q4_k", 256, 144, 32, offset=True),
        Block("q5_k", 256, 176, 32, offset=True),
        Block("q6_k", 256, 210, 16),
        Block("iq4_nl", 32, 18, 32),
        Block("iq4_xs", 256, 136, 32),
    )
})

PLAIN_NAMES = frozenset({"f32", "f16", "bf16", "f64", "float32", "float16", "bfloat16", "float64"})
"""Element types that need no decoding: a tensor of one of these is a plain weight."""


def block_named(name: str) -> Block:
    """The format called `name`, in any case; raises ValueError that lists what is read."""
    block = BLOCKS.get(name.lower())
    if block is None:
        raise ValueError(f"block format {name!r} is not supported; supported are {', '.join(BLOCKS)}")
    return block


def spec_of(name: str) -> QuantSpec:
    """The canonical description of a weight stored in this format."""
    block = block_named(name)
    return QuantSpec(
        weight_type=block.name,
        bits=block.bits,
        group_size=block.group,
        zero_points=block.offset,
        scale_type="float16",
        packing=PACKING,
    )
