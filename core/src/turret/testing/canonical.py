"""Quantized weights in the canonical packing, for whoever tests a linear kernel, and the cases that try them all.

Owns: one spec for each pattern of numbers that a checkpoint may hold (`CANONICAL_SPECS`), random weights of them, and
the comparison with `turret.nn.canonical`. Knows no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from turret.contracts import LayerSpec, LinearCall, LinearKernel, LinearQuery, OpProvider, QuantizedWeight, QuantSpec
from turret.nn.canonical import canonical_params, dequantize
from turret.testing.cases import NotApplicable

__all__ = ["CANONICAL_SPECS", "canonical_weight", "check_quantized"]

CANONICAL_SPECS: Mapping[str, QuantSpec] = MappingProxyType({
    "int4 groups of 32": QuantSpec("int4", 4, 32, scale_type="float16"),
    "int4 groups of 64, zero points": QuantSpec("int4", 4, 64, True, "bfloat16"),
    "int4 groups of 128": QuantSpec("int4", 4, 128, scale_type="bfloat16"),
    "int4 groups of 128, zero points": QuantSpec("int4", 4, 128, True, "float16"),
    "int4 groups of 96, zero points": QuantSpec("int4", 4, 96, True, "float32"),
    "int4 groups of 512": QuantSpec("int4", 4, 512, scale_type="float32"),
    "int4 rows": QuantSpec("int4", 4, 0, scale_type="float32"),
    "int4 rows, zero points": QuantSpec("int4", 4, 0, True, "float16"),
    "int4 act-order": QuantSpec("int4", 4, 128, True, "float16", act_order=True),
    "int8 rows": QuantSpec("int8", 8, 0, scale_type="float32"),
    "w8a8": QuantSpec("int8", 8, 0, scale_type="bfloat16", activation_type="int8", activation_granularity="token"),
    "int8 groups of 128": QuantSpec("int8", 8, 128, scale_type="bfloat16"),
    "int8 groups of 32, zero points": QuantSpec("int8", 8, 32, True, "float16"),
    "fp8 rows": QuantSpec("fp8_e4m3", 8, 0, scale_type="float32"),
    "fp8 blocks of 128": QuantSpec("fp8_e4m3", 8, 128, scale_type="float32"),
    "fp8 e5m2 rows": QuantSpec("fp8_e5m2", 8, 0, scale_type="bfloat16"),
    "mxfp8": QuantSpec("fp8_e4m3", 8, 32, scale_type="e8m0"),
    "mxfp4": QuantSpec("fp4_e2m1", 4, 32, scale_type="e8m0"),
    "nvfp4": QuantSpec("fp4_e2m1", 4, 16, scale_type="fp8_e4m3"),
})
"""What int8, GPTQ, AWQ, compressed-tensors, fp8, MXFP4, MXFP8 and NVFP4 checkpoints become."""

SHAPE = (40, 200)
ROWS = (1, 5, 17)
TOLERANCE = {"float32": 1e-5, "bfloat16": 3e-2}
"""Of the largest output. A kernel may round bfloat16 activations to 8 bits."""


def canonical_weight(spec: QuantSpec, out_features: int, in_features: int) -> QuantizedWeight:
    """Random codes, every finite one among them, with scales of ordinary size."""
    generator = torch.Generator().manual_seed(out_features + in_features)
    params: dict[str, Tensor] = {}
    for name, param in canonical_params(LayerSpec("layer", out_features, in_features), spec).items():
        dtype = getattr(torch, param.dtype)
        if name == "order":
            params[name] = torch.randperm(in_features, generator=generator).to(dtype)
        elif name == "codes":
            params[name] = _codes(spec, param.shape, generator).view(dtype)
        elif name == "zero":
            params[name] = torch.randint(0, 17 if spec.bits == 4 else 256, param.shape, generator=generator).to(dtype)
        elif name == "scale" and spec.scale_type == "e8m0":
            params[name] = torch.randint(118, 128, param.shape, generator=generator).to(dtype)
        elif name == "scale" and spec.scale_type == "fp8_e4m3":
            params[name] = (torch.randn(param.shape, generator=generator) * 40).to(dtype)
        else:
            params[name] = (torch.rand(param.shape, generator=generator) * 0.01 + 0.002).to(dtype)
    return QuantizedWeight(spec, out_features, in_features, params)


def _codes(spec: QuantSpec, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Random bytes, without those that stand for no finite number."""
    codes = torch.randint(0, 256, shape, generator=generator).to(torch.uint8)
    if spec.weight_type.startswith("fp8"):
        codes[codes & 127 >= (124 if spec.weight_type == "fp8_e5m2" else 127)] = 1
    return codes


def check_quantized(load: Callable[[], OpProvider]) -> None:
    """Each kernel that takes a quantized weight multiplies as its numbers do, and a row's result is its own."""
    tried = 0
    for kernel in load().linear_kernels():
        for name, spec in CANONICAL_SPECS.items():
            for dtype in TOLERANCE:
                if kernel.supports(LinearQuery(spec, *SHAPE, dtype, "cpu")).ok:
                    tried += 1
                    _multiply(kernel, name, dtype)
    if not tried:
        raise NotApplicable("it offers no kernels for quantized weights in the canonical packing on the CPU")


def _multiply(kernel: LinearKernel, name: str, dtype: str) -> None:
    weight = canonical_weight(CANONICAL_SPECS[name], *SHAPE)
    dense = dequantize(weight).double()
    packed = kernel.pack(weight)
    x = torch.randn(max(ROWS), SHAPE[1], generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype))
    expected = x.double() @ dense.T
    whole = torch.empty(max(ROWS), SHAPE[0])
    kernel.apply(LinearCall(whole, x, packed))
    off = float((whole.double() - expected).abs().max() / expected.abs().max())
    assert off < TOLERANCE[dtype], f"{kernel.name}, {name}, {dtype}: off by {off:.2g} of the largest output"
    for rows in ROWS:
        out = torch.empty(rows, SHAPE[0])
        kernel.apply(LinearCall(out, x[:rows], packed))
        assert torch.equal(out, whole[:rows]), f"{kernel.name}, {name}, {dtype}: a row depends on the other rows"
    looked_up = torch.empty(2, SHAPE[1])
    kernel.rows(packed, torch.tensor([0, SHAPE[0] - 1]), looked_up)
    assert torch.allclose(looked_up.double(), dense[[0, -1]], rtol=1e-5, atol=1e-6), f"{kernel.name}, {name}: rows()"
