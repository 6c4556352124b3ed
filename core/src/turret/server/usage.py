"""Token counts of a call in the shape of OpenAI's usage object.

Owns: what counts. Knows nothing of routes.
"""

from __future__ import annotations

from dataclasses import dataclass

from turret.server.results import Run
from turret.server.wire import PromptTokensDetails, Usage

__all__ = ["UsageCounter"]


@dataclass(frozen=True, slots=True)
class UsageCounter:
    """Counts one run; a prompt counts once whatever n, a hidden output not at all."""

    run: Run
    with_details: bool
    hide_output: bool = False

    def now(self) -> Usage:
        """Usage so far."""
        prompt = self.run.job.num_prompt_tokens
        output = 0 if self.hide_output else self.run.num_output_tokens
        if not self.with_details:
            return Usage(prompt, prompt + output, output)
        return Usage(prompt, prompt + output, output, PromptTokensDetails(self.run.num_cached_tokens))
