"""SmolLM3: Llama with no positions at all in every fourth layer.

Owns: `SMOLLM3`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from turret.nn import DecoderFamily, DecoderSpec, HFConfig

__all__ = ["SMOLLM3"]


def _smollm3(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    period = int(config.get("no_rope_layer_interval", 4))
    turned = config.get("no_rope_layers", [(index + 1) % period for index in range(config.num_layers)])
    kinds = config.kinds if config.get("use_sliding_window", False) else ["full_attention"] * config.num_layers
    blocks = config.blocks(config.attention(), config.mlp(), kinds=kinds)
    without = [replace(block, attention=replace(block.attention, rope=None)) for block in blocks]
    chosen = tuple(a if has_rope else b for a, b, has_rope in zip(blocks, without, turned, strict=True))
    return config.decoder(chosen)


SMOLLM3 = DecoderFamily(_smollm3)
