"""Beam search offline: parameters and results as users of vLLM know them, and the loop that runs the steps.

Owns: those. Knows nothing of how sequences are ranked (`turret.server.beams`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from turret.llm.outputs import Logprob, logprob_maps
from turret.messages import Request, TokenEvent
from turret.sampling import SamplingParams
from turret.server.beam_steps import BeamSteps
from turret.server.choices import Choice
from turret.server.expansion import Generation
from turret.text import TextProcessor

__all__ = ["BeamSearchOutput", "BeamSearchParams", "BeamSearchSequence", "Generates", "run_beams"]


class Generates(Protocol):
    """An engine, or several, in this process."""

    def generate(self, requests: Iterable[Request]) -> Iterator[TokenEvent]:
        """Events of all requests until each had its last one."""


class BeamSearchParams(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for. `temperature` has no effect: sequences are ranked by what the model says."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False

    def sampling(self) -> SamplingParams:
        """The same, as a request carries it; raises `RequestError` for what is out of range."""
        return SamplingParams(
            n=self.beam_width, max_tokens=self.max_tokens, ignore_eos=self.ignore_eos, logprobs=0,
            include_stop_str_in_output=self.include_stop_str_in_output,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BeamSearchSequence:
    """One sequence, prompt and all; `logprobs` are those of the generated tokens."""

    tokens: list[int]
    text: str | None
    cum_logprob: float
    logprobs: list[dict[int, Logprob]]
    finish_reason: str | None
    stop_reason: int | str | None


@dataclass(frozen=True, slots=True)
class BeamSearchOutput:
    """The sequences found for one prompt, best first."""

    sequences: list[BeamSearchSequence]


def run_beams(
    text: TextProcessor, engine: Generates, jobs: Sequence[tuple[Generation, list[Request], str | None]]
) -> list[BeamSearchOutput]:
    """Search for every prompt, all of them step by step together; raises the error of the first that fails."""
    searches = [BeamSteps(job, requests) for job, requests, _ in jobs]
    while asked := [(search, requests) for search in searches if (requests := search.requests())]:
        together = [request for _, requests in asked for request in requests]
        ended = {event.request_id: event for event in engine.generate(together) if event.finish_reason is not None}
        for search, requests in asked:
            search.take(requests, ended)
    return [
        BeamSearchOutput([_sequence(text, job, requests[0], prompt, event) for event in search.endings()])
        for search, (job, requests, prompt) in zip(searches, jobs, strict=True)
    ]


def _sequence(
    text: TextProcessor, job: Generation, request: Request, prompt: str | None, event: TokenEvent
) -> BeamSearchSequence:
    ids, entries = job.prompts[0], event.logprobs or []
    choice = Choice(0, request.request_id, text.output(job.params, ids))
    delta = choice.advance(event)
    if prompt is None and text.has_tokenizer:
        prompt = text.tokenizer.decode(ids)
    return BeamSearchSequence(
        tokens=[*ids, *event.token_ids],
        text=None if prompt is None else prompt + delta.text,
        cum_logprob=sum(entry.logprob for entry in entries),
        logprobs=logprob_maps(text, entries),
        finish_reason=delta.finish_reason,
        stop_reason=delta.stop_reason,
    )
