"""Qwen: 2 and 2.5 have a bias on queries, keys and values; 3 norms queries and keys per head instead. Both come with
experts too: 2 with a gated shared one, 3 without.

Owns: `QWEN2`, `QWEN2_MOE`, `QWEN3`, `QWEN3_MOE`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turret.nn import FULL, SLIDING, DecoderFamily, DecoderSpec, HFConfig, QKNorm

__all__ = ["QWEN2", "QWEN2_MOE", "QWEN3", "QWEN3_MOE"]


def _kinds(config: HFConfig) -> list[str]:
    """The window, where switched on, is that of the upper layers."""
    first = int(config.get("max_window_layers", config.num_layers))
    windowed = bool(config.get("use_sliding_window", False)) and config.get("sliding_window") is not None
    pattern = [SLIDING if windowed and index >= first else FULL for index in range(config.num_layers)]
    return list(config.get("layer_types", pattern))


def _qwen2(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    attention = config.attention(qkv_bias=True, out_bias=False)
    return config.decoder(config.blocks(attention, config.mlp(), kinds=_kinds(config)))


def _qwen3(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    attention = config.attention(qk_norm=QKNorm.HEAD)
    return config.decoder(config.blocks(attention, config.mlp(), kinds=_kinds(config)))


def _qwen2_moe(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    attention = config.attention(qkv_bias=bool(config.get("qkv_bias", True)), out_bias=False)
    experts = config.moe(shared_size=int(config.need("shared_expert_intermediate_size")), shared_gate=True)
    blocks = config.blocks(attention, config.mlp(), kinds=_kinds(config))
    return config.decoder(config.sparse(blocks, experts))


def _qwen3_moe(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    attention = config.attention(qk_norm=QKNorm.HEAD)
    kind = SLIDING if config.get("use_sliding_window", False) and config.get("sliding_window") else FULL
    blocks = config.blocks(attention, config.mlp(), kinds=[kind] * config.num_layers)
    return config.decoder(config.sparse(blocks, config.moe()))


QWEN2 = DecoderFamily(_qwen2)
QWEN2_MOE = DecoderFamily(_qwen2_moe)
QWEN3_MOE = DecoderFamily(_qwen3_moe)
QWEN3 = DecoderFamily(_qwen3)
