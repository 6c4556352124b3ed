"""Made-up weights: for `--load-format dummy` and for tests.

Owns: `make_up`. Knows no layer. Each tensor's numbers depend on the seed and its own name only.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from turret.nn.weights import FLOATING, Parameter, torch_dtype

__all__ = ["make_up"]


def make_up(parameter: Parameter, dtype: str, seed: int) -> Tensor:
    """A tensor for one parameter: matrices keep the variance of what they multiply, gains lie near one.

    Integer tensors of quantized formats get zeros, which every format reads as finite: bytes that hold scales of their
    own could be read as numbers of any size.
    """
    generator = torch.Generator().manual_seed((zlib.crc32(parameter.name.encode()) + seed * 0x9E3779B1) % 2**63)
    shape, spec_dtype = parameter.spec.shape, parameter.spec.dtype
    wanted = torch_dtype(dtype if spec_dtype == FLOATING else spec_dtype)
    if not wanted.is_floating_point:
        return torch.zeros(shape, dtype=wanted)
    if parameter.init == "zeros":
        return torch.zeros(shape, dtype=wanted)
    noise = torch.randn(shape, generator=generator, dtype=torch.float32)
    if parameter.init == "gain":
        return noise.mul_(0.02).add_(parameter.init_mean).to(wanted)
    return noise.mul_(shape[-1] ** -0.5 if shape else 1.0).to(wanted)
