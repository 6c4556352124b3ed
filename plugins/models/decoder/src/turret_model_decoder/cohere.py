"""Command R and A: attention and MLP side by side on one LayerNorm without bias, interleaved rope, scaled logits; the
second has windows with rope on three layers of four and no positions on the fourth.

Owns: `COHERE`, `COHERE2`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from turret.nn import FULL, BlockSpec, DecoderFamily, DecoderSpec, HFConfig, Placing

__all__ = ["COHERE", "COHERE2"]


def _decoder(config: HFConfig, blocks: tuple[BlockSpec, ...]) -> DecoderSpec:
    return config.decoder(
        blocks,
        norm=config.norm(kind="layer", eps=float(config.get("layer_norm_eps", 1e-5))),
        tied=bool(config.get("tie_word_embeddings", True)),
        logits_scale=float(config.get("logit_scale", 0.0625)),
    )


def _cohere(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    config.refuse("use_qk_norm")
    attention = config.attention(rope=config.rope(interleaved=True))
    return _decoder(config, config.blocks(attention, config.mlp(), Placing.PARALLEL))


def _cohere2(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    kinds = config.kinds_every(int(config.get("sliding_window_pattern", 4)))
    attention = config.attention(rope=config.rope(interleaved=True))
    blocks = config.blocks(attention, config.mlp(), Placing.PARALLEL, kinds)
    without = [replace(block, attention=replace(block.attention, rope=None)) for block in blocks]
    chosen = tuple(b if kind == FULL else a for a, b, kind in zip(blocks, without, kinds, strict=True))
    return _decoder(config, chosen)


COHERE = DecoderFamily(_cohere)
COHERE2 = DecoderFamily(_cohere2)
