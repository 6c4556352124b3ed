"""Phi-3, 3.5 and 4: Llama with queries, keys, values and with gate and up stored fused; long contexts by LongRoPE.

Owns: `PHI3`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turret.nn import FULL, SLIDING, DecoderFamily, DecoderSpec, HFConfig, WeightNames

__all__ = ["PHI3"]


def _phi3(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    kind = SLIDING if config.get("sliding_window") else FULL
    kinds = [kind] * config.num_layers
    blocks = config.blocks(config.attention(qkv_bias=False, out_bias=False), config.mlp(), kinds=kinds)
    return config.decoder(blocks, names=WeightNames(qkv="self_attn.qkv_proj", gate_up="mlp.gate_up_proj"))


PHI3 = DecoderFamily(_phi3)
