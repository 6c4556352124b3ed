"""Answers of `supports`: yes, or no with reasons people can act on.

Owns: `Verdict`. Knows nothing of what was asked.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a plugin can serve a query; `reasons` are sentences, needed when it cannot."""

    ok: bool
    reasons: tuple[str, ...] = ()

    @classmethod
    def yes(cls) -> Verdict:
        """It can."""
        return cls(True)

    @classmethod
    def no(cls, *reasons: str) -> Verdict:
        """It cannot, and why."""
        return cls(False, reasons)

    def __bool__(self) -> bool:
        return self.ok
