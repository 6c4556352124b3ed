"""What becomes of a call: the interface of a run, and whole choices put together from deltas.

Owns: `Run` and `ChoiceResult`. Knows nothing of engines or of how runs differ.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from turret.messages import TokenLogprobs
from turret.server.choices import Choice, ChoiceDelta
from turret.server.expansion import Generation

__all__ = ["ChoiceResult", "Run", "collect"]


class Run(Protocol):
    """One call on its way: iterate `deltas` once, or `collect` it."""

    job: Generation
    choices: list[Choice]

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far, over all choices."""

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache held; a prompt counts once."""

    def deltas(self) -> AsyncGenerator[ChoiceDelta, None]:
        """Deltas of all choices, mixed, until each has finished.

        Closing it, or cancelling the task that iterates, aborts what still runs. Raises `RequestFailedError` when the
        engine could not finish a choice and `CapacityError` when the server ended the call.
        """


@dataclass(slots=True)
class ChoiceResult:
    """A whole choice, for answers that are not streamed."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, delta: ChoiceDelta) -> None:
        """Append what one delta brought."""
        self.text += delta.text
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs or ()
        self.prompt_logprobs = delta.prompt_logprobs or self.prompt_logprobs
        self.finish_reason = delta.finish_reason
        self.stop_reason = delta.stop_reason


async def collect(run: Run, watch: Callable[[ChoiceDelta], object] | None = None) -> list[ChoiceResult]:
    """All choices of a run, whole, in order. `watch` sees each delta; what it raises aborts the run."""
    results = [ChoiceResult(choice.index) for choice in run.choices]
    async with aclosing(run.deltas()) as deltas:
        async for delta in deltas:
            results[delta.index].add(delta)
            if watch is not None:
                watch(delta)
    return results
