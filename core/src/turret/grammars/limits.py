"""Bounds of compiling.

Owns: `CompileLimits`. Knows nothing of what is compiled.
"""

from __future__ import annotations

import msgspec

__all__ = ["CompileLimits"]


class CompileLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of one grammar: `seconds` from the start of compiling, `memory_bytes` beyond what the process had, `size_bytes`
    when compiled. `at_once` compile at a time, `waiting` wait. A step of the trial that follows may take
    `step_seconds`. What was made is kept up to `cache_bytes`."""

    seconds: float = 10.0
    memory_bytes: int = 1 << 30
    size_bytes: int = 16 << 20
    at_once: int = 2
    waiting: int = 256
    step_seconds: float = 0.25
    trial_steps: int = 48
    trial_seconds: float = 1.0
    cache_bytes: int = 64 << 20
