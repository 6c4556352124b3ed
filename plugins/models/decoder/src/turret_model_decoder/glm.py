"""GLM-4: interleaved rope on half of each head, gate and up stored fused; the later class norms both sides of a branch.

Owns: `GLM`, `GLM4`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turret.nn import AttentionSpec, DecoderFamily, DecoderSpec, HFConfig, Placing, WeightNames

__all__ = ["GLM", "GLM4"]


def _attention(config: HFConfig) -> AttentionSpec:
    return config.attention(rope=config.rope(interleaved=True), out_bias=False)


def _glm(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    names = WeightNames(gate_up="mlp.gate_up_proj")
    return config.decoder(config.blocks(_attention(config), config.mlp()), names=names)


def _glm4(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    names = WeightNames(
        gate_up="mlp.gate_up_proj",
        attn_post_norm="post_self_attn_layernorm",
        mlp_norm="post_attention_layernorm",
        mlp_post_norm="post_mlp_layernorm",
    )
    return config.decoder(config.blocks(_attention(config), config.mlp(), Placing.SANDWICH), names=names)


GLM = DecoderFamily(_glm)
GLM4 = DecoderFamily(_glm4)
