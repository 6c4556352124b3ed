"""Reference ops that choose among logits, in plain torch.

Owns: `argmax`; signature as `turret.contracts.ops`. Knows no sampling.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["argmax"]


def argmax(token: Tensor, value: Tensor, x: Tensor) -> None:
    """The first of each row's largest numbers, and where it is; not-a-number counts as the largest."""
    torch.argmax(x, dim=1, out=token)
    value.copy_(x.gather(1, token.unsqueeze(1)).squeeze(1))
