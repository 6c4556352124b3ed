"""A request's budget for reasoning: when it is used up, and what is generated then.

Owns: `ThinkingRow`. Knows no text and no logits. It sees every token of its request in order, so what it asks for is
the same in any batch, and after a preemption, when it sees them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turret.messages import ThinkingBudget

__all__ = ["ThinkingRow"]

_LEADING = 8
"""Tokens before a start that may be white space, in families whose reasoning can only be at the start."""


class ThinkingRow:
    """One request. `forced` is the token that must come next, None while any may; `done` once nothing can be forced."""

    __slots__ = ("_budget", "_count", "_inside", "_length", "_pending", "_seen", "_tail", "done")

    def __init__(self, budget: ThinkingBudget, outputs: Iterable[int] = ()) -> None:
        self._budget = budget
        self._inside = budget.begun
        self._count = self._seen = 0
        self._pending: list[int] = []
        self._tail: list[int] = []
        self._length = max(map(len, [*budget.starts, *budget.ends, budget.force]))
        self.done = False
        self._check()
        for token in outputs:
            self.append(token)

    @property
    def forced(self) -> int | None:
        """The token that must come next."""
        return self._pending[0] if self._pending else None

    def append(self, token: int) -> None:
        """Take note of a generated token."""
        if self.done:
            return
        self._seen += 1
        if self._pending:
            self._pending.pop(0)
            if not self._pending:
                self._leave()
            return
        self._tail = [*self._tail[1 - self._length :], token] if self._length > 1 else [token]
        if self._inside:
            self._reasoned()
        elif self._ends_with(self._budget.starts):
            self._inside, self._tail = True, []
            self._check()
        elif not self._budget.again and self._seen >= _LEADING + self._length:
            self.done = True

    def _reasoned(self) -> None:
        if self._ends_with(self._budget.ends):
            self._leave()
            return
        self._count += 1
        if self._count == self._seen and self._ends_with(self._budget.starts):
            self._count, self._tail = 0, []  # the model repeats the start that the prompt holds
        self._check()

    def _check(self) -> None:
        """Once the budget is used up, the end comes; of an end that has begun already, the rest."""
        if not self._inside or self._count < self._budget.tokens:
            return
        force = self._budget.force
        begun = next((n for n in range(len(force) - 1, 0, -1) if self._tail[-n:] == force[:n]), 0)
        self._pending = force[begun:]

    def _leave(self) -> None:
        self._inside, self._tail = False, []
        self.done = not self._budget.again

    def _ends_with(self, sequences: Sequence[Sequence[int]]) -> bool:
        return any(ids and self._tail[-len(ids) :] == list(ids) for ids in sequences)
