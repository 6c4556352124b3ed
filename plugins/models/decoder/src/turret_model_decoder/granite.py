"""Granite: Llama with four multipliers, on embeddings, attention scores, residual branches and (dividing) logits.

Owns: `GRANITE`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turret.nn import DecoderFamily, DecoderSpec, HFConfig

__all__ = ["GRANITE"]


def _granite(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    attention = config.attention(scale=float(config.get("attention_multiplier", 1.0)))
    return config.decoder(
        config.blocks(attention, config.mlp()),
        embedding_scale=float(config.get("embedding_multiplier", 1.0)),
        residual_multiplier=float(config.get("residual_multiplier", 1.0)),
        logits_scale=1.0 / float(config.get("logits_scaling", 1.0)),
    )


GRANITE = DecoderFamily(_granite)
