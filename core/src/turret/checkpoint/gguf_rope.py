"""Rotary position parameters of a GGUF file, in the shape Hugging Face configs give them (`rope_parameters`).

Owns: the reading of `rope.*` metadata and of the frequency tensors. Knows nothing of how rotations are applied.

Llama 3.1 and later scale frequencies by a rule with four numbers; the file stores only the resulting divisors, one per
frequency, as tensor `rope_freqs.weight`. Where the published rule reproduces those divisors the rule is given (it is
what Hugging Face would say); where it does not, the divisors themselves are given as `longrope` factors, which mean
exactly that: inverse frequency i is divided by factor i.
"""

from __future__ import annotations

import math
from typing import Any

from turret.checkpoint.gguf_header import GgufArray, GgufFile
from turret.errors import LoadError

__all__ = ["rope_parameters", "tidy"]

_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_TOLERANCE = 1e-3


def rope_parameters(file: GgufFile, arch: str, default_theta: float) -> dict[str, Any]:
    """`rope_parameters` of the file; `default_theta` is what llama.cpp assumes when the base is not stored."""
    theta = _number(file, f"{arch}.rope.freq_base", default_theta)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    long, short = file.floats("rope_factors_long.weight"), file.floats("rope_factors_short.weight")
    divisors = file.floats("rope_freqs.weight")
    if long is not None and short is not None:
        return rope | _longrope(file, arch, (short, long))
    if divisors is not None and any(abs(d - 1.0) > _TOLERANCE for d in divisors):
        return rope | _from_divisors(divisors, theta)
    return rope | _scaling(file, arch)


def _number(file: GgufFile, key: str, default: float) -> float:
    value = file.metadata.get(key, default)
    if isinstance(value, (str, GgufArray)):
        raise LoadError(f"{file.path}: metadata {key} must be a number")
    return tidy(float(value))


def tidy(value: float) -> float:
    """A float32 read from a file as the short decimal it was written from (9.999999747378752e-06 becomes 1e-05)."""
    return float(f"{value:.7g}")


def _scaling(file: GgufFile, arch: str) -> dict[str, Any]:
    kind = file.metadata.get(f"{arch}.rope.scaling.type", "none")
    prefix = f"{arch}.rope.scaling."
    factor = _number(file, prefix + "factor", 1.0)
    if kind in ("none", "longrope") or factor == 1.0:
        return {}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise LoadError(f"{file.path}: metadata {prefix}type is {kind!r}; turret knows none, linear, yarn and longrope")
    scaled: dict[str, Any] = {"rope_type": "yarn", "factor": factor}
    original = file.metadata.get(prefix + "original_context_length")
    if original is not None:
        scaled["original_max_position_embeddings"] = original
    for key, name in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
        if prefix + key in file.metadata:
            scaled[name] = _number(file, prefix + key, 0.0)
    return scaled


def _longrope(file: GgufFile, arch: str, factors: tuple[list[float], list[float]]) -> dict[str, Any]:
    short, long = factors
    prefix = f"{arch}.rope.scaling."
    context = file.metadata.get(f"{arch}.context_length")
    original = file.metadata.get(prefix + "original_context_length", context)
    if not isinstance(original, int) or not isinstance(context, int):
        raise LoadError(f"{file.path}: long rope factors need metadata {prefix}original_context_length")
    scaled: dict[str, Any] = {
        "rope_type": "longrope", "short_factor": short, "long_factor": long,
        "original_max_position_embeddings": original, "factor": context / original,
    }  # fmt: skip
    if prefix + "attn_factor" in file.metadata:
        scaled["attention_factor"] = _number(file, prefix + "attn_factor", 1.0)
    return scaled


def _from_divisors(divisors: list[float], theta: float) -> dict[str, Any]:
    factor = round(max(divisors), 4)
    expected = _llama3_divisors(len(divisors), theta, factor)
    if all(math.isclose(a, b, rel_tol=_TOLERANCE) for a, b in zip(divisors, expected, strict=True)):
        return {"rope_type": "llama3", "factor": factor, **_LLAMA3}
    return {
        "rope_type": "longrope", "short_factor": divisors, "long_factor": divisors, "factor": 1.0,
        "attention_factor": 1.0,
    }  # fmt: skip


def _llama3_divisors(count: int, theta: float, factor: float) -> list[float]:
    """What the published rule divides each of `count` inverse frequencies by.

    Long wavelengths are divided by `factor`, short ones not at all, those between by a smooth mix (Llama 3.1).
    """
    low, high, original = (float(v) for v in _LLAMA3.values())
    out = []
    for i in range(count):
        wavelength = 2 * math.pi * theta ** (i / count)
        if wavelength < original / high:
            out.append(1.0)
        elif wavelength > original / low:
            out.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            out.append(1.0 / ((1.0 - smooth) / factor + smooth))
    return out
