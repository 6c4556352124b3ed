"""One call with beam search, run on an engine that knows nothing of beams.

Owns: the requests of each step, and turning the best sequences into choices. Knows nothing of how beams are ranked
(`turret.server.beams`) or of HTTP.

Each step sends every live sequence as a prompt that wants one token and the likeliest alternatives; the prefix cache
spares computing what the steps share.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

import msgspec

from turret.engine import event_error
from turret.errors import CapacityError, RequestError
from turret.messages import FinishReason, Request, TokenEvent, TokenLogprobs
from turret.sampling import SamplingParams
from turret.server.admission import Ticket
from turret.server.beams import Beam, BeamRules, BeamSearch
from turret.server.choices import Choice, ChoiceDelta
from turret.server.expansion import Generation
from turret.server.run_tools import RunTools

__all__ = ["BeamRun", "check_beams", "first_requests"]

MAX_BEAMS = 256
"""Sequences of one call that live at a time, over all its prompts: each is compared with 2 * width others a step."""
NEUTRAL = {
    "stop": None, "bad_words": None, "logit_bias": None, "allowed_token_ids": None, "prompt_logprobs": None,
    "logprob_token_ids": None, "repetition_detection": None, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}  # fmt: skip
"""Parameters that beam search does not know, and the values that ask for nothing."""
MAX_LENGTH_PENALTY = 10.0


def check_beams(job: Generation, logprobs_mode: str) -> None:
    """Refuse what beams cannot do."""
    for name, neutral in NEUTRAL.items():
        if getattr(job.params, name) not in (neutral, [], {}):
            raise RequestError(f"{name} cannot be combined with use_beam_search", name)
    if not logprobs_mode.endswith("logprobs"):
        raise RequestError(
            f"use_beam_search needs log-probabilities, and this server runs with --logprobs-mode {logprobs_mode}",
            "use_beam_search",
        )
    if len(job.prompts) * job.params.n > MAX_BEAMS:
        raise RequestError(
            f"{len(job.prompts)} prompts with a beam width (n) of {job.params.n} are {len(job.prompts) * job.params.n} "
            f"beams, more than the {MAX_BEAMS} of one call",
            "n",
        )
    penalty = job.length_penalty
    if penalty is None or not -MAX_LENGTH_PENALTY <= penalty <= MAX_LENGTH_PENALTY:
        raise RequestError(
            f"length_penalty must be between -{MAX_LENGTH_PENALTY:g} and {MAX_LENGTH_PENALTY:g}, got {penalty}",
            "length_penalty",
        )


@dataclass(slots=True)
class _Prompt:
    """One prompt's search: the request that each step copies, and what came of the first."""

    request: Request
    search: BeamSearch
    num_cached_tokens: int = 0
    first_scheduled: float | None = None


class BeamRun:
    """One call on its way, as any `turret.server.results.Run`."""

    def __init__(self, job: Generation, tools: RunTools, requests: list[Request], ticket: Ticket) -> None:
        self.job = job
        self._tools = tools
        self._ticket = ticket
        self._prompts = [
            _prompt(job, request, limit) for request, limit in zip(requests, job.max_tokens, strict=True)
        ]
        self._open: list[str] = []
        self._step = 0
        self._aborted = False
        text = tools.parts.text
        self.choices = [
            Choice(i * job.params.n + k, prompt.request.request_id, text.output(job.params, job.prompts[i], job.shown))
            for i, prompt in enumerate(self._prompts)
            for k in range(job.params.n)
        ]

    @property
    def num_output_tokens(self) -> int:
        """Tokens of the sequences found; what was tried and dropped does not count."""
        return sum(choice.num_tokens for choice in self.choices)

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache held when the search began."""
        return sum(prompt.num_cached_tokens for prompt in self._prompts)

    async def deltas(self) -> AsyncGenerator[ChoiceDelta, None]:
        """Each choice, whole, best first."""
        client = self._tools.parts.client
        with self._tools.opened(self.job, self._ticket, self.abort) as timer:
            timer.submitted(self.choices, lambda _: 0)
            while live := [(prompt, beam) for prompt in self._prompts for beam in prompt.search.live]:
                requests = [self._request(prompt, beam, place) for place, (prompt, beam) in enumerate(live)]
                self._open = [request.request_id for request in requests]
                async with client.submit(requests) as source:
                    events = [event async for event in source if event.finish_reason is not None]
                self._take({event.request_id: event for event in events})
            for choice, event in self._endings():
                delta = choice.advance(event)
                timer.saw(choice, event)
                timer.finished(choice, delta.finish_reason)
                yield delta

    async def abort(self) -> None:
        """End the step that runs, and the search with it."""
        self._aborted = True
        await self._tools.parts.client.abort(self._open)

    def _request(self, prompt: _Prompt, beam: Beam, place: int) -> Request:
        base = prompt.request
        return msgspec.structs.replace(
            base,
            request_id=f"{base.request_id}.{self._step}.{place}" if self._step else base.request_id,
            prompt_token_ids=base.prompt_token_ids + beam.token_ids,
            queue_deadline=None if self._step else base.queue_deadline,
        )

    def _take(self, events: dict[str, TokenEvent]) -> None:
        """What a step brought; raises the error of one that failed."""
        ids = iter(self._open)
        for prompt in self._prompts:
            mine = [events[next(ids)] for _ in prompt.search.live]
            for event in mine:
                if (error := event_error(event)) is not None:
                    raise error
            if not self._step:
                self._ticket.started(prompt.request.request_id)
                prompt.num_cached_tokens = mine[0].num_cached_tokens
                prompt.first_scheduled = mine[0].first_scheduled
            if not self._aborted and mine:
                prompt.search.advance([_thought(event) for event in mine])
        self._step += 1
        if self._aborted:
            self._give_up()

    def _give_up(self) -> None:
        """The call was aborted: it ends with what was found, or with an error where the server is what ends."""
        if self._tools.lifecycle.expired:
            raise CapacityError("the server is shutting down; this request was ended before it was complete")
        for prompt in self._prompts:
            prompt.search.end(FinishReason.ABORT)

    def _endings(self) -> list[tuple[Choice, TokenEvent]]:
        """The choices with all their tokens; a search that found too few leaves its last choices empty."""
        found = []
        for i, prompt in enumerate(self._prompts):
            beams = prompt.search.best
            for k in range(self.job.params.n):
                choice = self.choices[i * self.job.params.n + k]
                found.append((choice, self._ending(prompt, beams[k] if k < len(beams) else None, choice)))
        return found

    def _ending(self, prompt: _Prompt, beam: Beam | None, choice: Choice) -> TokenEvent:
        entries = [] if beam is None else beam.entries
        tokens = [entry.token_id for entry in entries]
        missing = FinishReason.ABORT if self._aborted else FinishReason.LENGTH
        reason = missing if beam is None else beam.finish_reason
        named = bool(tokens) and reason is FinishReason.STOP and tokens[-1] in prompt.request.stop_token_ids
        return TokenEvent(
            request_id=choice.request_id, token_ids=tokens, logprobs=entries, finish_reason=reason,
            stop_reason=tokens[-1] if named else None, num_cached_tokens=prompt.num_cached_tokens,
            first_scheduled=prompt.first_scheduled,
        )  # fmt: skip


def first_requests(job: Generation) -> Generation:
    """What the first step asks of the engine: one token of each prompt."""
    step = SamplingParams(
        temperature=0.0, max_tokens=1, logprobs=1, detokenize=False, stop_token_ids=job.params.stop_token_ids
    )
    return replace(job, params=step, max_tokens=tuple(1 for _ in job.prompts))


def _prompt(job: Generation, request: Request, limit: int) -> _Prompt:
    """The search for one prompt, and the request that its steps copy, which asks for as much as the search looks at."""
    rules = _rules(job, request, limit)
    asked = job.params.logprobs or 0
    count = -1 if asked < 0 else max(asked, rules.num_candidates)
    sampling = request.sampling.replace(logprobs=count)
    return _Prompt(msgspec.structs.replace(request, sampling=sampling), BeamSearch(rules))


def _rules(job: Generation, request: Request, limit: int) -> BeamRules:
    params = job.params
    ends = [*request.stop_token_ids, *(() if params.ignore_eos else request.eos_token_ids)]
    asked = params.logprobs or 0
    assert job.length_penalty is not None
    return BeamRules(
        params.n, job.length_penalty, limit, params.min_tokens, frozenset(ends), 1 << 30 if asked < 0 else asked
    )  # fmt: skip


def _thought(event: TokenEvent) -> TokenLogprobs:
    assert event.logprobs, "every step asks for log-probabilities"
    return event.logprobs[0]
