"""Samples: data that only a plugin's author can make, handed to the kit by `<package>.conformance.samples()`.

Owns their shapes. Knows no format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turret.contracts import LayerSpec, ParserContext, QuantContext

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ModelSample", "ParserSample", "QuantSample"]


@dataclass(frozen=True)
class QuantSample:
    """One stored layer of a quantized checkpoint and the weight it stands for.

    `expected` float32 [N, K] should come from elsewhere than the plugin; `rtol` 0 asks for the same bits.
    """

    name: str
    context: QuantContext
    layer: LayerSpec
    params: Mapping[str, Tensor]
    expected: Tensor
    rtol: float = 1e-6


@dataclass(frozen=True)
class ModelSample:
    """A tiny config (a few thousand parameters), as `normalized_config` would give it."""

    name: str
    config: Mapping[str, Any]
    vocab_size: int | None = None


@dataclass(frozen=True)
class ParserSample:
    """A whole answer and what it must be read as; `calls` are (name, arguments) with arguments as parsed JSON.

    `parsers` names those of the distribution's parsers that it is for; empty means all.
    """

    name: str
    text: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    context: ParserContext = field(default_factory=ParserContext)
    parsers: tuple[str, ...] = ()
