"""Contract `quant`: checkpoint formats of quantized weights.

Owns: `QuantMethod`, `QuantSpec` and the values around them. Knows no format and no kernel. Version 1.0.

A method reads one checkpoint format and describes each layer's numbers canonically (`QuantSpec`); kernels are written
for patterns of QuantSpec, never for formats. N out features, K in features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LayerSpec", "ParamSpec", "QuantContext", "QuantMethod", "QuantSpec", "QuantizedWeight"]


@dataclass(frozen=True, slots=True)
class QuantSpec:
    """Canonical description of one weight's numbers.

    `weight_type` names the element code (`int4`, `fp8_e4m3`, or for block formats of llama.cpp the block's own
    name such
    as `q4_1`, since its scales live inside the block); `group_size` values along K share a scale (0: whole row,
    -1: whole
    tensor). `packing` names the byte layout after `canonicalize`.
    """

    weight_type: str
    bits: float
    group_size: int
    zero_points: bool = False
    scale_type: str = "float32"
    activation_type: str | None = None
    activation_granularity: str | None = None
    packing: str = "canonical"


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """A linear layer (or embedding) as the model asks for it: checkpoint `name` without `.weight`, N and K."""

    name: str
    out_features: int
    in_features: int
    role: str = "linear"


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One stored tensor of a layer: shape, dtype (torch name), which dimension is sharded, and packing ratio along
    it.
    """

    shape: tuple[int, ...]
    dtype: str
    shard_dim: int | None = None
    pack: int = 1


@dataclass(frozen=True, slots=True)
class QuantContext:
    """What a method may look at to decide: the model's config, and for each stored tensor its dtype or block type and
    shape, by checkpoint name (`model.layers.0.self_attn.q_proj.weight` → ("q4_1", (576, 576)))."""

    model_config: Mapping[str, Any]
    tensors: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)


@dataclass(slots=True)
class QuantizedWeight:
    """One layer's weight: its spec, N, K and stored tensors by parameter name. A plain weight has `spec` None and one
    parameter `weight` [N, K]."""

    spec: QuantSpec | None
    out_features: int
    in_features: int
    params: dict[str, Tensor]


@runtime_checkable
class QuantMethod(Protocol):
    """A checkpoint format. `parse` and `params` need no torch."""

    api: str
    name: str

    def parse(self, context: QuantContext) -> Mapping[str, QuantSpec]:
        """Spec per quantized weight, keyed by layer name (without `.weight`); layers not named are plain."""

    def params(self, layer: LayerSpec, spec: QuantSpec) -> Mapping[str, ParamSpec]:
        """The tensors that the checkpoint stores for the layer."""

    def canonicalize(self, weight: QuantizedWeight) -> QuantizedWeight:
        """Bring loaded tensors to the layout that `spec.packing` names; may reuse their memory."""

    def dequantize(self, weight: QuantizedWeight) -> Tensor:
        """Float32 [N, K] in plain torch: the oracle, and the path that makes the format run everywhere."""
