"""Contract `quant`: checkpoint formats of quantized weights.

Owns: `QuantMethod`, `QuantSpec` and the values around them. Knows no format and no kernel. Version 1.0.

A method reads one checkpoint format and describes each layer's numbers canonically (`QuantSpec`); kernels are written
for patterns of QuantSpec, never for formats. N out features, K in features.

Packing `ggml` is rows of llama.cpp's blocks: `weight` uint8 [N, row bytes]. Packing `canonical` is what every other
format is brought to; `turret.nn.canonical` reads it in plain torch:

    codes         int4, fp4_e2m1: uint8 [N, ceil(K/2)], the lower four bits first; int8: int8 [N, K], with zero points
                  uint8; fp8_e4m3, fp8_e5m2: torch's own types [N, K]
    scale         [N, G] of `scale_type`: G = ceil(K / group_size) groups along K, 1 if `group_size` is not positive. A
                  scale of a whole tensor, or of a block of rows, is repeated for each row, so that rows can be cut and
                  fused anywhere
    zero          uint8 [N, G], where `zero_points`
    global_scale  float32 [N], a factor: where `scale_type` is fp8_e4m3 (NVFP4)
    order         int32 [K], where `act_order`: value j of a row is meant for x[order[j]] (GPTQ: `g_idx`, sorted stably)

| weight_type | a value is | scale_type | group_size |
|---|---|---|---|
| int4 | (code - zero) * scale; without zero points zero is 8 | float16, bfloat16, float32 | rows or any |
| int8 | code * scale, with zero points (code - zero) * scale | the same | rows or any |
| fp8_e4m3, fp8_e5m2 | code * scale | the same, or e8m0 (uint8): 2^(u - 127) | rows or any (128 of 128x128) |
| fp4_e2m1 | code * scale | e8m0: MXFP4, groups of 32 | 32 |
| fp4_e2m1 | code * (scale * global_scale) | fp8_e4m3: NVFP4, groups of 16 | 16 |

Each product is rounded to float32 once. Codes, scales and factors are finite: checkpoints hold no others.
`activation_type` and `activation_granularity` say what the checkpoint expects of activations: a kernel may keep them
wider than that, never narrower.
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

    `weight_type` names the element code (`int4`, `fp8_e4m3`, or for block formats of llama.cpp the block's own name
    such as `q4_1`, since its scales live inside the block); `group_size` values along K share a scale (0: whole row,
    -1: whole tensor). `packing` names the byte layout after `canonicalize`; `act_order` says that columns are stored
    in an order of their own.
    """

    weight_type: str
    bits: float
    group_size: int
    zero_points: bool = False
    scale_type: str = "float32"
    activation_type: str | None = None
    activation_granularity: str | None = None
    packing: str = "canonical"
    act_order: bool = False


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
