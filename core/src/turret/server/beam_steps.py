"""The searches of one call, step by step: which requests a step makes of the engine, and what its answers mean.

Owns: what a call may ask of a search, the requests of each step, and the events that end choices. Knows nothing of how
sequences are ranked (`turret.server.beams`), nor of event loops: the offline door uses it too.

Each step sends every live sequence as a prompt that wants one token and the likeliest alternatives; the prefix cache
spares computing what the steps share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from turret.engine import event_error
from turret.errors import RequestError
from turret.messages import FinishReason, Request, TokenEvent, TokenLogprobs
from turret.sampling import SamplingParams
from turret.server.beams import Beam, BeamRules, BeamSearch
from turret.server.expansion import Generation

__all__ = ["BeamSteps", "check_beams", "first_requests"]

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


class BeamSteps:
    """While `requests` gives any, run them and hand their last events to `take`; then `endings`."""

    def __init__(self, job: Generation, requests: Sequence[Request]) -> None:
        self._job = job
        self._prompts = [
            _prompt(job, request, limit) for request, limit in zip(requests, job.max_tokens, strict=True)
        ]
        self._step = 0
        self._missing = FinishReason.LENGTH

    @property
    def begun(self) -> bool:
        """True once the first step is done."""
        return self._step > 0

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache held when the search began."""
        return sum(prompt.num_cached_tokens for prompt in self._prompts)

    def requests(self) -> list[Request]:
        """Those of the next step; none when every search is over."""
        live = [(prompt, beam) for prompt in self._prompts for beam in prompt.search.live]
        return [self._request(prompt, beam, place) for place, (prompt, beam) in enumerate(live)]

    def take(self, asked: Sequence[Request], events: Mapping[str, TokenEvent]) -> None:
        """What a step brought; raises the error of a request that failed."""
        ids = (request.request_id for request in asked)
        for prompt in self._prompts:
            mine = [events[next(ids)] for _ in prompt.search.live]
            for event in mine:
                if (error := event_error(event)) is not None:
                    raise error
            if not self._step:
                prompt.num_cached_tokens = mine[0].num_cached_tokens
                prompt.first_scheduled = mine[0].first_scheduled
            if mine and all(event.logprobs for event in mine):  # one that was aborted has none
                prompt.search.advance([thought for event in mine for thought in event.logprobs or ()])
        self._step += 1

    def abort(self) -> None:
        """End every search with what it has."""
        self._missing = FinishReason.ABORT
        for prompt in self._prompts:
            prompt.search.end(FinishReason.ABORT)

    def endings(self) -> list[TokenEvent]:
        """For each choice, best first, the event with all its tokens; a search that found too few leaves some empty."""
        found = []
        for prompt in self._prompts:
            beams: list[Beam | None] = [*prompt.search.best]
            beams += [None] * (self._job.params.n - len(beams))
            found += [self._ending(prompt, beam) for beam in beams]
        return found

    def _request(self, prompt: _Prompt, beam: Beam, place: int) -> Request:
        base = prompt.request
        return msgspec.structs.replace(
            base,
            request_id=f"{base.request_id}.{self._step}.{place}" if self._step else base.request_id,
            prompt_token_ids=base.prompt_token_ids + beam.token_ids,
            queue_deadline=None if self._step else base.queue_deadline,
        )

    def _ending(self, prompt: _Prompt, beam: Beam | None) -> TokenEvent:
        entries: list[TokenLogprobs] = [] if beam is None else beam.entries
        tokens = [entry.token_id for entry in entries]
        reason = self._missing if beam is None else beam.finish_reason
        named = bool(tokens) and reason is FinishReason.STOP and tokens[-1] in prompt.request.stop_token_ids
        return TokenEvent(
            request_id=prompt.request.request_id, token_ids=tokens, logprobs=entries, finish_reason=reason,
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
