"""What a client hands to the engine and what it gets back, token by token.

Owns: `Request`, `TokenEvent` and the log-probabilities they carry. Knows nothing of text or HTTP.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from turret.messages.grammar import GrammarProgram
from turret.messages.thinking import ThinkingBudget
from turret.sampling import SamplingParams

__all__ = ["FinishReason", "Request", "TokenEvent", "TokenLogprobs"]


class FinishReason(StrEnum):
    """Why a request ended. `REPETITION` is never the engine's: whoever reads its tokens notices."""

    STOP = "stop"
    LENGTH = "length"
    REPETITION = "repetition"
    ABORT = "abort"
    ERROR = "error"


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sequence to generate: plain integers, already validated and resolved.

    A prompt with n > 1 is n of these (`sampling.n` is then 1 and each has its own seed). `max_tokens` is resolved:
    it is never more than the context leaves. `stop_token_ids` are tokens that end the request besides `eos_token_ids`;
    both are suppressed until `sampling.min_tokens`. `seed` is always set, so that the same request gives the same bits
    wherever it runs. `queue_deadline` is when a request that was never scheduled is ended with an error instead. Times
    are seconds of `time.time()`. `grammar` is what the answer must match, `thinking` how much it may reason before.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    max_tokens: int
    seed: int
    eos_token_ids: list[int] = []
    stop_token_ids: list[int] = []
    bad_words_ids: list[list[int]] = []
    arrival_time: float = 0.0
    priority: int = 0
    cache_salt: str | None = None
    tenant: str = ""
    adapter: str | None = None
    queue_deadline: float | None = None
    grammar: GrammarProgram | None = None
    thinking: ThinkingBudget | None = None


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities at one position.

    `token_id` is the token that is there, with its `logprob` and its 1-based `rank` in the vocabulary; `top_ids` and
    `top_logprobs` are the most likely tokens, best first.
    """

    token_id: int
    logprob: float
    rank: int
    top_ids: list[int]
    top_logprobs: list[float]


class TokenEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one step did for one request.

    `finish_reason` is set on the last event of a request, exactly once; every request gets one. `stop_reason` is the
    stop token id that ended it (None for end-of-sequence). `prompt_logprobs` arrive with the first token: one entry per
    prompt token after the first. `num_cached_tokens` is how much of the prompt came from the prefix cache.
    `error` is a sentence for people, set with `FinishReason.ERROR`; `error_status` is then the status of the
    exception it stands for (400: the request's fault, 503: the engine's end) and `error_param` the field at fault, when
    known.
    `retry_after` says that the fault was one of capacity, and after how many seconds to try again.
    `first_scheduled` (time.time()) is set on the first event.
    """

    request_id: str
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None
    num_cached_tokens: int = 0
    error: str | None = None
    error_status: int = 500
    error_param: str | None = None
    retry_after: float | None = None
    first_scheduled: float | None = None
