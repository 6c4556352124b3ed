"""Contract `platform`, optional part: time by kernel.

Owns: the Protocol and the value it exchanges. Knows no device. Version 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["KernelTime", "ProfilingPlatform"]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What the calls of one kernel took together. `detail` tells calls of one name apart, such as a weight's shape;
    `weight_bytes` and `operations` are what they read of weights and computed, 0 where nobody counts it."""

    name: str
    detail: str
    calls: int
    seconds: float
    weight_bytes: int = 0
    operations: int = 0


@runtime_checkable
class ProfilingPlatform(Protocol):
    """A platform that can say where its time went. While it counts, work may be a little slower."""

    def start_profile(self) -> None:
        """Count from nothing. Raises NotSupportedError where nothing can be counted."""

    def stop_profile(self) -> Sequence[KernelTime]:
        """What was counted, the longest first."""
