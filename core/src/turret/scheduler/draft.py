"""A step while it is being planned, and after it was handed out.

Owns: `Draft` (budget left, parts of the plan) and `InFlight` (what a result is matched against). Knows nothing of
queues or blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from turret.messages import NewRequest, RunningRequest
from turret.scheduler.progress import Progress

__all__ = ["Draft", "Entry", "InFlight"]

Entry = tuple[Progress, int, int, bool]
"""One request's part of a step: (request, its epoch, computed tokens after the step, whether a token is sampled)."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A step that was planned and not yet committed; entries in plan order. `has_chunk` says that a very long prompt
    goes on after it."""

    step_id: int
    entries: list[Entry]
    has_chunk: bool = False


class Draft:
    """Parts of a plan. `partials` counts requests whose prompt is still unfinished after the step, `longs` those of
    them that are long; `has_chunk` is what `InFlight` says; `held_back` says that nothing new may be admitted, since
    memory ran short."""

    __slots__ = ("budget", "has_chunk", "held_back", "long_prefill", "longs", "new", "new_entries", "partials",
                 "running", "running_entries", "size", "very_long")  # fmt: skip

    def __init__(self, budget: int, long_prefill: int, very_long: int) -> None:
        self.budget = budget
        self.very_long = very_long
        self.has_chunk = False
        self.size = budget
        self.long_prefill = long_prefill
        self.held_back = False
        self.partials = 0
        self.longs = 0
        self.running: list[RunningRequest] = []
        self.running_entries: list[Entry] = []
        self.new: list[NewRequest] = []
        self.new_entries: list[Entry] = []

    @property
    def num_tokens(self) -> int:
        """Tokens planned so far."""
        return self.size - self.budget

    def is_long(self, progress: Progress) -> bool:
        """Whether the request has a long prefill before it."""
        return bool(self.long_prefill) and progress.num_tokens > self.long_prefill

    def advance(self, progress: Progress, num: int) -> Entry:
        """Spend `num` tokens on a request; a token is sampled when they reach the end of what is known of it."""
        self.budget -= num
        end = progress.num_computed = progress.num_computed + num
        sampled = end == progress.num_tokens
        if sampled:
            progress.num_tokens += 1
        else:
            self.partials += 1
            self.longs += self.is_long(progress)
            self.has_chunk |= progress.num_tokens > self.very_long
        return (progress, progress.epoch, end, sampled)
