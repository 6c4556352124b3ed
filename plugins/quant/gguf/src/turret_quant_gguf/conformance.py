"""Samples for turret's conformance kit: one layer in each block format, decoded by the `gguf` package.

Owns the making of random blocks whose numbers are of ordinary size. The kit imports this module, serving does not.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import torch

from turret.contracts import LayerSpec, QuantContext
from turret.testing import NotApplicable, QuantSample
from turret_quant_gguf.blocks import BLOCKS, PLAIN_NAMES, Block

__all__ = ["samples"]

ROWS = 24
LIMIT = 8.0
"""Largest magnitude of a weight: random scales reach further than any model's, and float32 sums lose meaning there."""


def samples() -> list[QuantSample]:
    if importlib.util.find_spec("gguf") is None:
        raise NotApplicable("the oracle, the package gguf, is not installed")
    rng = np.random.default_rng(5)
    return [_sample(block, rng) for name, block in BLOCKS.items() if name not in PLAIN_NAMES]


def _sample(block: Block, rng: np.random.Generator) -> QuantSample:
    packed, expected = _ordinary_blocks(block, ROWS * 2, rng)
    packed, expected = packed.reshape(ROWS, 2 * block.size), expected.reshape(ROWS, 2 * block.values)
    layer = LayerSpec("layer", ROWS, 2 * block.values)
    context = QuantContext({}, {"layer.weight": (block.name, (ROWS, 2 * block.values))})
    params = {"weight": torch.from_numpy(packed)}
    return QuantSample(block.name, context, layer, params, torch.from_numpy(expected), rtol=0)


def _ordinary_blocks(block: Block, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random blocks (bytes, values), kept where all values are finite and at most LIMIT."""
    from gguf import GGMLQuantizationType, quants  # an oracle for tests, not a dependency

    kind = GGMLQuantizationType[block.name.upper()]
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    while len(kept) < count:
        packed = rng.integers(0, 256, (256, block.size), dtype=np.uint8)
        with np.errstate(all="ignore"):
            values = np.asarray(quants.dequantize(packed, kind), dtype=np.float32).reshape(256, block.values)
            fine = np.flatnonzero((np.abs(values) <= LIMIT).all(axis=1) & (np.abs(values).max(axis=1) > 1e-3))
        kept.extend((packed[index], values[index]) for index in fine)
    return np.stack([one for one, _ in kept[:count]]), np.stack([one for _, one in kept[:count]])
