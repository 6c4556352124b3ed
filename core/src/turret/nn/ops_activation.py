"""Reference ops of activations and other elementwise steps, in plain torch.

Owns: `silu_and_mul`, `gelu_and_mul`, `activation`, `softcap`, `add`, `scale`, `copy`; signatures as
`turret.contracts.ops`. Knows nothing of layers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["ACTIVATIONS", "activation", "add", "copy", "gelu_and_mul", "scale", "silu_and_mul", "softcap"]

ACTIVATIONS = ("gelu", "gelu_tanh", "relu2", "silu")
"""Names that `activation` knows; `relu2` is the square of relu."""


def silu_and_mul(out: Tensor, x: Tensor) -> None:
    """out[T, I] = silu(x[:, :I]) * x[:, I:]."""
    gate, up = x.chunk(2, dim=-1)
    torch.mul(F.silu(gate), up, out=out)


def gelu_and_mul(out: Tensor, x: Tensor, tanh: bool) -> None:
    """out[T, I] = gelu(x[:, :I]) * x[:, I:], with the tanh approximation or exact."""
    gate, up = x.chunk(2, dim=-1)
    torch.mul(F.gelu(gate, approximate="tanh" if tanh else "none"), up, out=out)


def activation(out: Tensor, x: Tensor, name: str) -> None:
    """out = f(x) for a name of `ACTIVATIONS`; out may be x."""
    if name == "relu2":
        out.copy_(F.relu(x).square_())
    elif name == "silu":
        out.copy_(F.silu(x))
    elif name in ("gelu", "gelu_tanh"):
        out.copy_(F.gelu(x, approximate="tanh" if name == "gelu_tanh" else "none"))
    else:
        raise ValueError(f"unknown activation {name!r}; known are {', '.join(ACTIVATIONS)}")


def softcap(x: Tensor, cap: float) -> None:
    """In place: x = cap * tanh(x / cap)."""
    x.div_(cap).tanh_().mul_(cap)


def add(x: Tensor, y: Tensor) -> None:
    """In place: x += y."""
    x.add_(y)


def scale(x: Tensor, factor: float) -> None:
    """In place: x *= factor."""
    x.mul_(factor)


def copy(out: Tensor, x: Tensor) -> None:
    """out = x, in out's dtype."""
    out.copy_(x)
