"""Token counts of a call in the shape of OpenAI's usage object.

Owns: what counts. Knows nothing of routes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import UNSET

from turret.server.results import Run
from turret.server.wire import CompletionTokensDetails, PromptTokensDetails, Usage

__all__ = ["UsageCounter"]


@dataclass(frozen=True, slots=True)
class UsageCounter:
    """Counts one run; a prompt counts once whatever n, a hidden output not at all. `num_reasoning` counts reasoning."""

    run: Run
    with_details: bool
    hide_output: bool = False
    num_reasoning: Callable[[], int] | None = None

    def now(self) -> Usage:
        """Usage so far."""
        prompt = self.run.job.num_prompt_tokens
        output = 0 if self.hide_output else self.run.num_output_tokens
        cached = PromptTokensDetails(self.run.num_cached_tokens) if self.with_details else UNSET
        thought = UNSET if self.num_reasoning is None else CompletionTokensDetails(self.num_reasoning())
        return Usage(prompt, prompt + output, output, cached, thought)
