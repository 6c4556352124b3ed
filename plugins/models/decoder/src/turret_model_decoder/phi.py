"""Phi: 1 and 2 run both branches on one LayerNorm, with biases everywhere; 3, 3.5 and 4 are Llama with queries, keys
and values, and gate and up, stored fused, and long contexts by LongRoPE.

Owns: `PHI`, `PHI3`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turret.nn import FULL, SLIDING, DecoderFamily, DecoderSpec, HFConfig, Placing, WeightNames

__all__ = ["PHI", "PHI3"]


def _phi(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    config.refuse("qk_layernorm")
    names = WeightNames(o="self_attn.dense", up="mlp.fc1", down="mlp.fc2", norm="model.final_layernorm")
    norm = config.norm(kind="layer", eps=float(config.get("layer_norm_eps", 1e-5)), bias=True)
    attention = config.attention(qkv_bias=True, out_bias=True)
    blocks = config.blocks(attention, config.mlp(gated=False, bias=True), Placing.PARALLEL)
    return config.decoder(blocks, norm=norm, names=names, head_bias=True)


def _phi3(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    kind = SLIDING if config.get("sliding_window") else FULL
    kinds = [kind] * config.num_layers
    blocks = config.blocks(config.attention(qkv_bias=False, out_bias=False), config.mlp(), kinds=kinds)
    return config.decoder(blocks, names=WeightNames(qkv="self_attn.qkv_proj", gate_up="mlp.gate_up_proj"))


PHI = DecoderFamily(_phi)
PHI3 = DecoderFamily(_phi3)
