"""Stop strings: finds the first one in streamed text and holds back what could become one.

Owns: the matching. Knows nothing of tokens.

The result does not depend on how the text was cut: characters are consumed one by one, and the stop string that is
complete first wins (the longest of those complete at the same character). One automaton per stop string (Knuth, Morris
and Pratt) makes the work linear in the text, whatever the strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["StopMatch", "StopMatcher"]


class StopMatch(NamedTuple):
    """Text that is safe to show, and the stop string that ended it (None while there is none)."""

    text: str
    stop: str | None


class StopMatcher:
    """Watches the text of one sequence for `stops`; `include` leaves the stop string in the text."""

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        # Longest first, so that among strings complete at one character the first seen is the longest.
        self._stops = sorted(dict.fromkeys(stops), key=len, reverse=True)
        self._failures = [_failure(s) for s in self._stops]
        self._states = [0] * len(self._stops)
        self._heads = {s[0] for s in self._stops}
        self._include = include
        self._held = ""

    def push(self, text: str, armed: bool = True) -> StopMatch:
        """Consume more text. While not `armed` (minimum length not reached) a completed string does not count."""
        if not self._stops:
            return StopMatch(text, None)
        if not self._held and self._heads.isdisjoint(text):
            return StopMatch(text, None)
        buffer = self._held + text
        for at in range(len(self._held), len(buffer)):
            stop = self._step(buffer[at])
            if stop is not None and armed:
                self._held = ""
                return StopMatch(buffer[: at + 1 if self._include else at + 1 - len(stop)], stop)
        safe = len(buffer) - max(self._states)
        self._held = buffer[safe:]
        return StopMatch(buffer[:safe], None)

    def flush(self) -> str:
        """What was held back: the text ended without completing a stop string."""
        held, self._held = self._held, ""
        return held

    def _step(self, char: str) -> str | None:
        found = None
        for i, stop in enumerate(self._stops):
            state, failure = self._states[i], self._failures[i]
            while state and stop[state] != char:
                state = failure[state - 1]
            if stop[state] == char:
                state += 1
            if state == len(stop):
                found = found or stop
                state = failure[state - 1]
            self._states[i] = state
        return found


def _failure(pattern: str) -> list[int]:
    """For each prefix of `pattern`, the length of its longest proper prefix that is also its suffix."""
    table = [0]
    for char in pattern[1:]:
        state = table[-1]
        while state and pattern[state] != char:
            state = table[state - 1]
        table.append(state + 1 if pattern[state] == char else state)
    return table
