"""`DecoderFamily`: an architecture whose whole description is a spec function.

Owns: the implementation of `turret.contracts.ModelArchitecture` for such families. Knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from turret.contracts.models import AttentionNeed, ModelContext, WeightRule
from turret.nn.decoder import Decoder
from turret.nn.decoder_weights import decoder_weights
from turret.nn.spec import AttentionSpec, DecoderSpec

__all__ = ["DecoderFamily"]


@dataclass(frozen=True, slots=True)
class DecoderFamily:
    """`spec` maps a config to a description; model and weight placement follow from it."""

    spec: Callable[[Mapping[str, Any]], DecoderSpec]
    api: str = "1.0"

    def attention_needs(self, config: Mapping[str, Any]) -> list[AttentionNeed]:
        """The distinct kinds of attention layers."""
        return list(dict.fromkeys(_need(block.attention) for block in self.spec(config).blocks))

    def build(self, config: Mapping[str, Any], ctx: ModelContext) -> Decoder:
        """The model with empty parameters."""
        return Decoder(self.spec(config), ctx)

    def weights(self, config: Mapping[str, Any]) -> WeightRule:
        """Placement of each stored tensor."""
        return decoder_weights(self.spec(config))


def _need(spec: AttentionSpec) -> AttentionNeed:
    return AttentionNeed(
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_dim,
        value_head_size=spec.value_head_dim or spec.head_dim,
        sliding_window=spec.window is not None,
        softcap=spec.softcap > 0,
        sinks=spec.sinks,
        alibi=spec.alibi,
    )
