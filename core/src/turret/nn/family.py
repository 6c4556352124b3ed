"""`DecoderFamily`: an architecture whose whole description is a spec function.

Owns: the implementation of `turret.contracts.ModelArchitecture` for such families. Knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from turret.contracts.models import ModelContext, WeightRule
from turret.nn.decoder import Decoder
from turret.nn.decoder_weights import decoder_weights
from turret.nn.spec import DecoderSpec

__all__ = ["DecoderFamily"]


@dataclass(frozen=True, slots=True)
class DecoderFamily:
    """`spec` maps a config to a description; model and weight placement follow from it."""

    spec: Callable[[Mapping[str, Any]], DecoderSpec]
    api: str = "1.0"

    def build(self, config: Mapping[str, Any], ctx: ModelContext) -> Decoder:
        """The model with empty parameters."""
        return Decoder(self.spec(config), ctx)

    def weights(self, config: Mapping[str, Any]) -> WeightRule:
        """Placement of each stored tensor."""
        return decoder_weights(self.spec(config))
