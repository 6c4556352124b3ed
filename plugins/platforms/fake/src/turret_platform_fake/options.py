"""What the pretend device is told to be.

Owns: `FakeOptions`. The JSON Schema in the manifest has checked the values before they get here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["FakeOptions"]

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class FakeOptions:
    """See README.md for the meaning of each; sizes in bytes, times in seconds."""

    devices: int = 1
    memory_bytes: int | tuple[int, ...] = 4 * GIB
    probe_seconds: float = 0.0
    step_seconds: float = 0.0
    fail: tuple[str, ...] = ()
    out_of_memory_tokens: int | None = None
    die_at_step: int | None = None
    faulty_device: int | None = None
    script: str | None = None

    def memory_of(self, index: int) -> int:
        """Memory of one device; the last of a list is that of all devices after it."""
        sizes = self.memory_bytes
        return sizes if isinstance(sizes, int) else sizes[min(index, len(sizes) - 1)]

    def on_device(self, index: int) -> FakeOptions:
        """The options as they hold on one device: faults are those of the faulty one, if one is named."""
        if self.faulty_device in (None, index):
            return self
        return dataclasses.replace(self, fail=(), out_of_memory_tokens=None, die_at_step=None)

    @property
    def disturbs_forwards(self) -> bool:
        """Whether any option shows in a forward."""
        return self.step_seconds > 0 or self.out_of_memory_tokens is not None or self.die_at_step is not None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> FakeOptions:
        """From the values of `--plugin-config platform:fake.*`."""
        values = dict(options)
        values["fail"] = tuple(values.get("fail", ()))
        if isinstance(sizes := values.get("memory_bytes"), list):
            values["memory_bytes"] = tuple(sizes)
        return cls(**values)
