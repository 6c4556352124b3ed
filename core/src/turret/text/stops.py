"""Stop strings: finds the first one in streamed text and holds back what could become one.

Owns: the matching. Knows nothing of tokens.

The result does not depend on how the text was cut: characters are consumed one by one, and the stop string that is
complete first wins (the longest of those complete at the same character). One automaton for all stop strings (Aho and
Corasick) makes the work linear in the text, however many strings there are; it is built once for all the sequences of a
call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["StopAutomaton", "StopMatch", "StopMatcher"]


class StopMatch(NamedTuple):
    """Text that is safe to show, and the stop string that ended it (None while there is none)."""

    text: str
    stop: str | None


class StopAutomaton:
    """The prefixes of `stops` as states; state 0 is the empty one. Never changes, so any number of matchers share it.

    `heads` are the characters that begin a stop string, `held[state]` how many of the last characters could still
    become one, `found[state]` the longest stop string that is complete there.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._fail = [0]
        self.found: list[str | None] = [None]
        self.held = [0]
        for stop in stops:
            self._add(stop)
        self.heads = frozenset(self._next[0])
        self._link()

    def step(self, state: int, char: str) -> int:
        """The state after one more character."""
        following, fail = self._next, self._fail
        while char not in following[state]:
            if not state:
                return 0
            state = fail[state]
        return following[state][char]

    def _add(self, stop: str) -> None:
        state = 0
        for char in stop:
            children = self._next[state]
            if char not in children:
                children[char] = len(self._next)
                self._next.append({})
                self._fail.append(0)
                self.found.append(None)
                self.held.append(self.held[state] + 1)
            state = children[char]
        self.found[state] = stop

    def _link(self) -> None:
        """Per state, shortest first: where to go on when no character fits, and what that implies."""
        level = list(self._next[0].values())
        while level:
            deeper: list[int] = []
            for state in level:
                for char, child in self._next[state].items():
                    self._fail[child] = self.step(self._fail[state], char)
                    deeper.append(child)
                fail = self._fail[state]
                self.found[state] = self.found[state] or self.found[fail]
                if not self._next[state]:
                    self.held[state] = self.held[fail]  # nothing goes on from here
            level = deeper


class StopMatcher:
    """Watches the text of one sequence for `stops`; `include` leaves the stop string in the text."""

    def __init__(self, stops: Sequence[str] | StopAutomaton, include: bool = False) -> None:
        self._automaton = stops if isinstance(stops, StopAutomaton) else StopAutomaton(stops)
        self._state = 0
        self._include = include
        self._held = ""

    def push(self, text: str, armed: bool = True) -> StopMatch:
        """Consume more text. While not `armed` (minimum length not reached) a completed string does not count."""
        automaton = self._automaton
        if not self._held and automaton.heads.isdisjoint(text):
            self._state = 0
            return StopMatch(text, None)
        buffer, state = self._held + text, self._state
        for at in range(len(self._held), len(buffer)):
            state = automaton.step(state, buffer[at])
            stop = automaton.found[state]
            if stop is not None and armed:
                self._held = ""
                return StopMatch(buffer[: at + 1 if self._include else at + 1 - len(stop)], stop)
        self._state = state
        safe = len(buffer) - automaton.held[state]
        self._held = buffer[safe:]
        return StopMatch(buffer[:safe], None)

    def flush(self) -> str:
        """What was held back: the text ended without completing a stop string."""
        held, self._held, self._state = self._held, "", 0
        return held
