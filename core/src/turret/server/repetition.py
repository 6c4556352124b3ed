"""Sequences that go round in circles: one pattern again and again at their end.

Owns: finding it, token by token. Knows nothing of text.
"""

from __future__ import annotations

from collections.abc import Sequence

from turret.sampling import RepetitionDetection

__all__ = ["RepetitionDetector"]


class RepetitionDetector:
    """Watches the tokens of one sequence.

    A pattern of p tokens stands there c times as soon as p * (c - 1) tokens in a row each equal the one p before, so
    one counter for each length is all it takes.
    """

    def __init__(self, rule: RepetitionDetection) -> None:
        self._shortest, self._longest = max(1, rule.min_pattern_size), rule.max_pattern_size
        self._more = rule.min_count - 1
        self._equal = [0] * (self._longest + 1)
        self._recent: list[int] = []

    def find(self, token_ids: Sequence[int]) -> int | None:
        """How many of these further tokens complete a repetition; None while there is none."""
        for at, token in enumerate(token_ids):
            if self._push(token):
                return at + 1
        return None

    def _push(self, token: int) -> bool:
        recent, equal, found = self._recent, self._equal, False
        for size in range(self._shortest, min(self._longest, len(recent)) + 1):
            if recent[-size] == token:
                equal[size] += 1
                found = found or equal[size] >= size * self._more
            else:
                equal[size] = 0
        recent.append(token)
        if len(recent) > 2 * self._longest:
            del recent[: -self._longest]
        return found
