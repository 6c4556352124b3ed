"""Reference ops of the normalisations, in plain torch.

Owns: `rms_norm`, `fused_add_rms_norm`, `layer_norm`; signatures as `turret.contracts.ops`. Knows nothing of layers.

Sums run in float32 whatever the activation dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["fused_add_rms_norm", "layer_norm", "rms_norm"]


def rms_norm(out: Tensor, x: Tensor, weight: Tensor, eps: float, offset: float) -> None:
    """out = x / rms(x) * (offset + weight); x and out [..., H], weight [H]; out may be x."""
    wide = x.float()
    inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(eps))
    gain = weight.float() + offset if offset else weight.float()
    out.copy_((wide * inverse).mul_(gain))


def fused_add_rms_norm(out: Tensor, x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float) -> None:
    """residual += x, then out = rms_norm(residual); all [T, H]."""
    residual.add_(x)
    rms_norm(out, residual, weight, eps, offset)


def layer_norm(out: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> None:
    """out = (x - mean) / std * weight + bias; x and out [..., H]; out may be x."""
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    centred *= torch.rsqrt(centred.square().mean(-1, keepdim=True).add_(eps))
    if weight is not None:
        centred *= weight.float()
    if bias is not None:
        centred += bias.float()
    out.copy_(centred)
