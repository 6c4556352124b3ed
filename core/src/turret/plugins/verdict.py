"""Verdict: the answer to "can you do this?", with its reasons.

Owns that one value. Knows nothing of who asks or who answers.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes or no, with reasons written for the user who wonders why.

    A refusal must carry at least one reason; an approval may carry remarks.
    """

    ok: bool
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.ok and not self.reasons:
            raise ValueError("a refusal needs a reason")

    def __bool__(self) -> bool:
        return self.ok

    @classmethod
    def yes(cls, *remarks: str) -> Verdict:
        return cls(True, remarks)

    @classmethod
    def no(cls, *reasons: str) -> Verdict:
        return cls(False, reasons)
