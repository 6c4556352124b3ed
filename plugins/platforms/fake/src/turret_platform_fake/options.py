"""What the pretend device is told to be.

Owns: `FakeOptions`. The JSON Schema in the manifest has checked the values before they get here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["FakeOptions"]

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class FakeOptions:
    """See README.md for the meaning of each; sizes in bytes, times in seconds."""

    devices: int = 1
    memory_bytes: int = 4 * GIB
    probe_seconds: float = 0.0
    step_seconds: float = 0.0
    fail: tuple[str, ...] = ()
    out_of_memory_tokens: int | None = None
    die_at_step: int | None = None

    @property
    def disturbs_forwards(self) -> bool:
        """Whether any option shows in a forward."""
        return self.step_seconds > 0 or self.out_of_memory_tokens is not None or self.die_at_step is not None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> FakeOptions:
        """From the values of `--plugin-config platform:fake.*`."""
        values = dict(options)
        values["fail"] = tuple(values.get("fail", ()))
        return cls(**values)
