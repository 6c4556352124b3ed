"""Families of one small difference each: ERNIE 4.5, EXAONE 4, Hunyuan V1 (dense), CWM.

Owns: `CWM`, `ERNIE4_5`, `EXAONE4`, `HUNYUAN_V1`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from turret.nn import FULL, SLIDING, DecoderFamily, DecoderSpec, HFConfig, Placing, QKNorm, RopeSpec, WeightNames

__all__ = ["CWM", "ERNIE4_5", "EXAONE4", "HUNYUAN_V1"]


def _ernie(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    bias = bool(config.get("use_bias", False))
    attention = config.attention(rope=config.rope(interleaved=True), qkv_bias=bias, out_bias=bias)
    tied = bool(config.get("tie_word_embeddings", True))
    return config.decoder(config.blocks(attention, config.mlp(bias=bias)), tied=tied)


def _exaone4(values: Mapping[str, Any]) -> DecoderSpec:
    """Norms after the branches; where some layers have a window, the others have no positions."""
    config = HFConfig(values)
    windowed = config.get("sliding_window") is not None
    kinds = config.kinds_every(4) if windowed else config.kinds
    attention = config.attention(qk_norm=QKNorm.HEAD, qkv_bias=False, out_bias=False)
    blocks = config.blocks(attention, config.mlp(), Placing.POST, kinds)
    without = [replace(block, attention=replace(block.attention, rope=None)) for block in blocks]
    chosen = tuple(
        b if windowed and kind == FULL else a for a, b, kind in zip(blocks, without, kinds, strict=True)
    )  # fmt: skip
    names = WeightNames(attn_post_norm="post_attention_layernorm", mlp_post_norm="post_feedforward_layernorm")
    return config.decoder(chosen, names=names)


def _hunyuan_rope(config: HFConfig) -> RopeSpec:
    """What the files call dynamic, with an alpha, is a base stretched once and for all."""
    rope = config.rope()
    alpha = (config.get("rope_parameters") or config.get("rope_scaling", {})).get("alpha")
    if rope.kind != "dynamic" or not alpha:
        return rope
    return replace(rope, kind="default", base=rope.base * float(alpha) ** (rope.dim / (rope.dim - 2)))


def _hunyuan(values: Mapping[str, Any]) -> DecoderSpec:
    """Queries and keys are normed after they are turned."""
    config = HFConfig(values)
    attention = config.attention(rope=_hunyuan_rope(config), qk_norm=QKNorm.HEAD, qk_norm_after_rope=True)
    names = WeightNames(q_norm="self_attn.query_layernorm", k_norm="self_attn.key_layernorm")
    return config.decoder(config.blocks(attention, config.mlp()), names=names)


def _cwm(values: Mapping[str, Any]) -> DecoderSpec:
    """Llama with windows on all but every fourth layer, the first included in those that see everything."""
    config = HFConfig(values)
    period = int(config.get("window_pattern", 4))
    pattern = [SLIDING if index % period else FULL for index in range(config.num_layers)]
    attention = config.attention(qkv_bias=False, out_bias=False)
    return config.decoder(config.blocks(attention, config.mlp(), kinds=config.get("layer_types", pattern)))


CWM = DecoderFamily(_cwm)
ERNIE4_5 = DecoderFamily(_ernie)
EXAONE4 = DecoderFamily(_exaone4)
HUNYUAN_V1 = DecoderFamily(_hunyuan)
