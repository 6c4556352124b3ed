"""Mixtral: Mistral with eight experts in place of each MLP, two for each token.

Owns: `MIXTRAL`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turret.nn import FULL, SLIDING, DecoderFamily, DecoderSpec, HFConfig, WeightNames

__all__ = ["MIXTRAL"]

NAMES = WeightNames(
    router="block_sparse_moe.gate",
    experts="block_sparse_moe.experts.{e}.",
    expert_gate="w1",
    expert_up="w3",
    expert_down="w2",
)


def _mixtral(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    kind = SLIDING if config.get("sliding_window") else FULL
    experts = config.moe(renormalise=True)
    blocks = config.blocks(config.attention(), experts, kinds=[kind] * config.num_layers)
    return config.decoder(blocks, names=NAMES)


MIXTRAL = DecoderFamily(_mixtral)
