"""Quantized weights in the canonical packing, in plain torch.

Owns: what the tensors of a canonical weight are (`canonical_params`), the numbers they stand for (`dequantize`) and the
packing of 4-bit codes. Knows no checkpoint format: methods bring theirs to this one (contract `quant`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from turret.contracts.quant import LayerSpec, ParamSpec, QuantizedWeight, QuantSpec
from turret.errors import LoadError

__all__ = ["E2M1_VALUES", "canonical_params", "dequantize", "pack_nibbles", "unpack_nibbles"]

E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""What the lower three bits of a 4-bit float stand for; the fourth is the sign."""

CODE_TYPES: Mapping[str, str] = MappingProxyType({
    "int4": "uint8",
    "fp4_e2m1": "uint8",
    "int8": "int8",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
})
SCALE_TYPES: Mapping[str, str] = MappingProxyType({
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "e8m0": "uint8",
    "fp8_e4m3": "float8_e4m3fn",
})
NIBBLES = frozenset({"int4", "fp4_e2m1"})


def canonical_params(layer: LayerSpec, spec: QuantSpec) -> Mapping[str, ParamSpec]:
    """The tensors of a layer in the canonical packing. Raises LoadError that names what is unknown."""
    if spec.weight_type not in CODE_TYPES or spec.scale_type not in SCALE_TYPES:
        described = f"{spec.weight_type} with {spec.scale_type} scales"
        raise LoadError(f"layer {layer.name!r}: {described} has no canonical packing")
    rows, columns = layer.out_features, layer.in_features
    groups = -(-columns // spec.group_size) if spec.group_size > 0 else 1
    unsigned = spec.weight_type == "int8" and spec.zero_points
    width, pack = (-(-columns // 2), 2) if spec.weight_type in NIBBLES else (columns, 1)
    params = {
        "codes": ParamSpec((rows, width), "uint8" if unsigned else CODE_TYPES[spec.weight_type], 0, pack),
        "scale": ParamSpec((rows, groups), SCALE_TYPES[spec.scale_type], 0),
    }
    if spec.zero_points:
        params["zero"] = ParamSpec((rows, groups), "uint8", 0)
    if spec.scale_type == "fp8_e4m3":
        params["global_scale"] = ParamSpec((rows,), "float32", 0)
    if spec.act_order:
        params["order"] = ParamSpec((columns,), "int32")
    return params


def dequantize(weight: QuantizedWeight) -> Tensor:
    """Float32 [N, K] of a canonical weight."""
    spec, params, columns = weight.spec, weight.params, weight.in_features
    assert spec is not None and spec.packing == "canonical"
    scale = _scales(spec, params).repeat_interleave(spec.group_size if spec.group_size > 0 else columns, 1)[:, :columns]
    values = _codes(spec, params["codes"])[:, :columns]
    if spec.zero_points:
        zero = params["zero"].float()
        values = values - zero.repeat_interleave(spec.group_size if spec.group_size > 0 else columns, 1)[:, :columns]
    elif spec.weight_type == "int4":
        values = values - 8
    dense = values * scale
    if not spec.act_order:
        return dense
    ordered = torch.empty_like(dense)
    ordered[:, params["order"].long()] = dense
    return ordered


def _codes(spec: QuantSpec, codes: Tensor) -> Tensor:
    """What codes stand for before scales and zero points."""
    if spec.weight_type == "int4":
        return unpack_nibbles(codes).float()
    if spec.weight_type == "fp4_e2m1":
        table = torch.tensor([*E2M1_VALUES, *(-value for value in E2M1_VALUES)], device=codes.device)
        return table[unpack_nibbles(codes).long()]
    return codes.float()


def _scales(spec: QuantSpec, params: Mapping[str, Tensor]) -> Tensor:
    """Float32 [N, G]."""
    scale = params["scale"]
    if spec.scale_type == "e8m0":
        bits = (scale.int() << 23).clamp(min=1 << 22)  # the smallest is subnormal
        return bits.view(torch.float32)
    if spec.scale_type == "fp8_e4m3":
        return scale.float() * params["global_scale"][:, None]
    return scale.float()


def pack_nibbles(codes: Tensor) -> Tensor:
    """Codes below 16 [N, K] as uint8 [N, ceil(K/2)], the first of two in the lower half."""
    codes = codes.to(torch.uint8)
    if codes.shape[1] % 2:
        codes = torch.nn.functional.pad(codes, (0, 1))
    return codes[:, ::2] | codes[:, 1::2] << 4


def unpack_nibbles(packed: Tensor) -> Tensor:
    """uint8 [N, W] as codes [N, 2W]."""
    return torch.stack([packed & 15, packed >> 4], -1).flatten(1)
