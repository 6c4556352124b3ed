"""Rotary tables: cos and sin of every position, for each way of scaling that families use.

Owns: `rotary_table` and the inverse frequencies behind it. Knows no family.

A token's rotation depends on its position only, never on how long its sequence has become, so that cached keys stay
valid and chunking changes nothing. For `dynamic` and `longrope`, whose published forms look at the current length, the
length looked at is the largest position the model was built for.

Sources: RoFormer (Su 2021); position interpolation (Chen 2023); YaRN (Peng 2023); LongRoPE (Ding 2024); Llama 3.1's
model card for `llama3`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from turret.errors import LoadError
from turret.nn.spec import RopeSpec

__all__ = ["inverse_frequencies", "rotary_table"]


def rotary_table(spec: RopeSpec, max_position: int, device: str) -> Tensor:
    """cos_sin [max_position, R] float32: cos in columns :R/2, sin in R/2:, both times the attention factor."""
    inverse, factor = inverse_frequencies(spec, max_position)
    angles = torch.outer(torch.arange(max_position, dtype=torch.float32), inverse)
    return (torch.cat((angles.cos(), angles.sin()), dim=-1) * factor).to(device)


def inverse_frequencies(spec: RopeSpec, max_position: int) -> tuple[Tensor, float]:
    """Inverse frequencies [R/2] and the factor on cos and sin."""
    if spec.kind == "default":
        return _plain(spec), 1.0
    if spec.kind == "linear":
        return _plain(spec) / spec.factor, 1.0
    if spec.kind == "dynamic":
        return _dynamic(spec, max_position), 1.0
    if spec.kind == "llama3":
        return _llama3(spec), 1.0
    if spec.kind == "yarn":
        return _yarn(spec), _yarn_factor(spec)
    if spec.kind == "longrope":
        return _longrope(spec, max_position), _longrope_factor(spec)
    raise LoadError(f"unknown rope type {spec.kind!r}; known are default, linear, dynamic, llama3, yarn, longrope")


def _exponents(spec: RopeSpec) -> Tensor:
    return torch.arange(0, spec.dim, 2, dtype=torch.int64).float() / spec.dim


def _plain(spec: RopeSpec, base: float | None = None) -> Tensor:
    return torch.reciprocal((spec.base if base is None else base) ** _exponents(spec))


def _dynamic(spec: RopeSpec, max_position: int) -> Tensor:
    """Neural-tangent-kernel scaling: a larger base beyond the trained length."""
    length = max(max_position, spec.original_max_position)
    growth = spec.factor * length / spec.original_max_position - (spec.factor - 1)
    return _plain(spec, spec.base * growth ** (spec.dim / (spec.dim - 2)))


def _llama3(spec: RopeSpec) -> Tensor:
    """Long waves are slowed by `factor`, short ones kept, those between blended."""
    inverse = _plain(spec)
    turns = spec.original_max_position * inverse / (2 * math.pi)
    blend = (turns - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor)
    blend = blend.clamp(0.0, 1.0)
    return (1 - blend) * inverse / spec.factor + blend * inverse


def _yarn(spec: RopeSpec) -> Tensor:
    """Dimensions that turn often keep their frequency, slow ones are interpolated, with a ramp between."""

    def dimension(turns: float) -> float:
        period = spec.original_max_position / (turns * 2 * math.pi)
        return spec.dim * math.log(period) / (2 * math.log(spec.base))

    low, high = dimension(spec.beta_fast), dimension(spec.beta_slow)
    if spec.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, spec.dim - 1)
    ramp = (torch.arange(spec.dim // 2, dtype=torch.float32) - low) / ((high - low) or 0.001)
    slow = ramp.clamp(0.0, 1.0)
    inverse = _plain(spec)
    return inverse / spec.factor * slow + inverse * (1 - slow)


def _yarn_factor(spec: RopeSpec) -> float:
    def temperature(mscale: float) -> float:
        return 1.0 if spec.factor <= 1 else 0.1 * mscale * math.log(spec.factor) + 1.0

    if spec.attention_factor is not None:
        return spec.attention_factor
    if spec.mscale and spec.mscale_all_dim:
        return temperature(spec.mscale) / temperature(spec.mscale_all_dim)
    return temperature(1.0)


def _longrope(spec: RopeSpec, max_position: int) -> Tensor:
    """Per-dimension factors; the long set when positions beyond the trained length will be asked for."""
    chosen = spec.long_factor if max_position > spec.original_max_position else spec.short_factor
    if len(chosen) * 2 != spec.dim:
        raise LoadError(f"longrope needs {spec.dim // 2} factors, the config has {len(chosen)}")
    return torch.reciprocal(torch.tensor(chosen, dtype=torch.float32) * spec.base ** _exponents(spec))


def _longrope_factor(spec: RopeSpec) -> float:
    if spec.attention_factor is not None:
        return spec.attention_factor
    if spec.factor <= 1.0:
        return 1.0
    return math.sqrt(1 + math.log(spec.factor) / math.log(spec.original_max_position))
