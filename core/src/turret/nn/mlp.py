"""The feed-forward layer.

Owns: `MLP` (gated with fused gate and up, or plain) and `MLPBuffers`. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from turret.errors import LoadError
from turret.nn.context import Scratch
from turret.nn.factory import LayerFactory
from turret.nn.linear import Part
from turret.nn.ops_activation import ACTIVATIONS
from turret.nn.spec import MLPSpec, WeightNames

__all__ = ["MLP", "MLPBuffers", "MLPSizes"]

Activate = Callable[[Tensor, Tensor], None]


@dataclass(slots=True)
class MLPBuffers:
    """Scratch of one step: `up` [T, I or 2I] and `active` [T, I]."""

    up: Tensor
    active: Tensor

    @classmethod
    def take(cls, scratch: Scratch, spec: MLPSpec, rows: int, dtype: torch.dtype) -> MLPBuffers:
        size = spec.intermediate_size
        width = 2 * size if spec.gated else size
        return cls(
            scratch.take(f"mlp_up.{width}", (rows, width), dtype),
            scratch.take(f"mlp_active.{size}", (rows, size), dtype),
        )


class MLP:
    """`mlp(out, x, buffers)`: out[T, H] from x[T, H]."""

    def __init__(self, prefix: str, spec: MLPSpec, factory: LayerFactory, names: WeightNames, sizes: MLPSizes) -> None:
        layer, size = names.layer.format(i=sizes.index), spec.intermediate_size
        if not spec.gated:
            parts = [Part(layer + names.up, size)]
        elif names.gate_up is not None:
            parts = [Part(layer + names.gate_up, 2 * size)]
        else:
            parts = [Part(layer + names.gate, size), Part(layer + names.up, size)]
        self.spec = spec
        self.up = factory.linear(f"{prefix}.gate_up" if spec.gated else f"{prefix}.up", parts, sizes.hidden, spec.bias)
        self.down = factory.linear(f"{prefix}.down", [Part(layer + names.down, sizes.hidden)], size, spec.bias)
        self._activate = _activation(spec, factory)

    def __call__(self, out: Tensor, x: Tensor, buffers: MLPBuffers) -> None:
        self.up(buffers.up, x)
        self._activate(buffers.active, buffers.up)
        self.down(out, buffers.active)


@dataclass(frozen=True, slots=True)
class MLPSizes:
    """Which layer, and the hidden size."""

    index: int
    hidden: int


def _activation(spec: MLPSpec, factory: LayerFactory) -> Activate:
    ops, name = factory.ops.ops, spec.activation
    if not spec.gated:
        if name not in ACTIVATIONS:
            raise LoadError(f"unknown activation {name!r}; known are {', '.join(ACTIVATIONS)}")
        plain = ops["activation"]
        return lambda out, x: plain(out, x, name)
    if name == "silu":
        return ops["silu_and_mul"]
    if name in ("gelu", "gelu_tanh"):
        gelu, tanh = ops["gelu_and_mul"], name == "gelu_tanh"
        return lambda out, x: gelu(out, x, tanh)
    raise LoadError(f"no gated op for activation {name!r}; known are silu, gelu, gelu_tanh")
