"""Norm layers and other small vectors.

Owns: `Norm` (rms or layer, alone or fused with the residual add) and `Vector`. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from turret.contracts.quant import ParamSpec
from turret.nn.spec import NormSpec
from turret.nn.weights import FLOATING, Parameter

__all__ = ["Norm", "Vector"]

Ops = Mapping[str, Callable[..., None]]


class Norm:
    """`norm(out, x)`, and `norm.add(out, x, residual)` which first does residual += x and norms the sum.

    Gains are kept in float32. A LayerNorm's offset is folded into its gain, since its op has none.
    """

    def __init__(self, target: str, name: str, size: int, spec: NormSpec, ops: Ops, device: str) -> None:
        self.target = target
        self.size = size
        self.spec = spec
        self.weight: Tensor | None = None if spec.kind == "layer" else torch.ones(size, device=device)
        self.bias: Tensor | None = None
        self._name = name
        self._device = device
        self._rms, self._fused = ops["rms_norm"], ops["fused_add_rms_norm"]
        self._layer, self._add = ops["layer_norm"], ops["add"]
        self.add = self._add_rms if spec.kind == "rms" else self._add_layer
        self._apply = self._apply_rms if spec.kind == "rms" else self._apply_layer

    def parameters(self) -> list[Parameter]:
        shape = ParamSpec((self.size,), FLOATING)
        wanted = []
        if self.spec.weight:
            mean = 1.0 - self.spec.offset
            wanted.append(Parameter(self.target, 0, "weight", f"{self._name}.weight", shape, "gain", mean))
        if self.spec.bias:
            wanted.append(Parameter(self.target, 0, "bias", f"{self._name}.bias", shape, "zeros"))
        return wanted

    def adopt(self, tensors: Mapping[tuple[int, str], Tensor]) -> int:
        held = 0
        if self.spec.weight:
            self.weight = tensors[0, "weight"].to(device=self._device, dtype=torch.float32)
            if self.spec.kind == "layer" and self.spec.offset:
                self.weight = self.weight + self.spec.offset
            held += self.weight.nbytes
        if self.spec.bias:
            self.bias = tensors[0, "bias"].to(device=self._device, dtype=torch.float32)
            held += self.bias.nbytes
        return held

    def __call__(self, out: Tensor, x: Tensor) -> None:
        self._apply(out, x)

    def _apply_rms(self, out: Tensor, x: Tensor) -> None:
        self._rms(out, x, self.weight, self.spec.eps, self.spec.offset)

    def _apply_layer(self, out: Tensor, x: Tensor) -> None:
        self._layer(out, x, self.weight, self.bias, self.spec.eps)

    def _add_rms(self, out: Tensor, x: Tensor, residual: Tensor) -> None:
        self._fused(out, x, residual, self.weight, self.spec.eps, self.spec.offset)

    def _add_layer(self, out: Tensor, x: Tensor, residual: Tensor) -> None:
        self._add(residual, x)
        self._layer(out, residual, self.weight, self.bias, self.spec.eps)


class Vector:
    """A lone float32 parameter, such as a layer's attention sinks [Hq]. `name` is the stored tensor's whole name."""

    def __init__(self, target: str, name: str, shape: tuple[int, ...], device: str) -> None:
        self.target = target
        self.value: Tensor | None = None
        self._name = name
        self._shape = shape
        self._device = device

    def parameters(self) -> list[Parameter]:
        return [Parameter(self.target, 0, "weight", self._name, ParamSpec(self._shape, FLOATING), "zeros")]

    def adopt(self, tensors: Mapping[tuple[int, str], Tensor]) -> int:
        self.value = tensors[0, "weight"].to(device=self._device, dtype=torch.float32)
        return self.value.nbytes
