"""Counter-based random numbers for sampling.

Owns: the one function from (seed, output index) to a uniform number. Knows nothing of batches or logits.

A number depends on nothing but its two arguments, so a request draws the same numbers in any batch, in any row and
after any preemption. The generator is splitmix64: output i of the stream whose state starts at mix(seed), where mix is
the 64-bit finalizer (xor-shift-multiply, constants of Stafford's variant 13) and the state steps by the odd constant
2^64 / golden ratio. Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.
"""

from __future__ import annotations

__all__ = ["mix64", "uniform"]

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def mix64(value: int) -> int:
    """A bijection of 64-bit integers in which every input bit reaches every output bit."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, index: int) -> float:
    """The number in [0, 1) that output token `index` of a request with `seed` (any 64-bit integer) is drawn with."""
    state = mix64(seed) + (index + 1) * _STEP
    return (mix64(state) >> 11) * 2.0**-53
