"""OLMo: 1 has norms without weights; 2 and 3 norm after each branch, and queries and keys over the whole projection; 3
adds windows to three layers of four.

OLMoE has experts, and norms before each branch.

Owns: `OLMO`, `OLMO2`, `OLMO3`, `OLMOE`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turret.nn import FULL, DecoderFamily, DecoderSpec, HFConfig, Placing, QKNorm, WeightNames

__all__ = ["OLMO", "OLMO2", "OLMO3", "OLMOE"]

POST_NAMES = WeightNames(attn_post_norm="post_attention_layernorm", mlp_post_norm="post_feedforward_layernorm")


def _olmo(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    config.refuse("clip_qkv")
    norm = config.norm(kind="layer", eps=1e-5, weight=False)
    return config.decoder(config.blocks(config.attention(), config.mlp()), norm=norm)


def _olmo2(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    attention = config.attention(qk_norm=QKNorm.WHOLE)
    kinds = [FULL] * config.num_layers
    return config.decoder(config.blocks(attention, config.mlp(), Placing.POST, kinds), names=POST_NAMES)


def _olmo3(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    attention = config.attention(qk_norm=QKNorm.WHOLE)
    blocks = config.blocks(attention, config.mlp(), Placing.POST, config.kinds_every(4))
    return config.decoder(blocks, names=POST_NAMES)


def _olmoe(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    config.refuse("clip_qkv")
    attention = config.attention(qk_norm=QKNorm.WHOLE)
    return config.decoder(config.blocks(attention, config.moe()))


OLMO = DecoderFamily(_olmo)
OLMOE = DecoderFamily(_olmoe)
OLMO2 = DecoderFamily(_olmo2)
OLMO3 = DecoderFamily(_olmo3)
