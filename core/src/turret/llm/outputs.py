"""What `LLM` gives back.

Owns: the result values, with the fields that users of vLLM know. Knows nothing of how they came about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from turret.messages import TokenLogprobs
from turret.text import TextProcessor

__all__ = ["CompletionOutput", "Logprob", "Metric", "RequestOutput", "logprob_maps"]


@dataclass(frozen=True, slots=True)
class Logprob:
    """One token's log-probability; `rank` is 1 for the most likely token."""

    logprob: float
    rank: int
    decoded_token: str | None


@dataclass(slots=True)
class CompletionOutput:
    """One continuation.

    `finish_reason` is `stop`, `length`, `abort` or `error`; `stop_reason` the stop string or stop token id that ended
    it (None for end-of-sequence). `logprobs` has one map from token id per token, when asked for. `error` says what
    went wrong with this one when `finish_reason` is `error`; the others are complete.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    lora_request: None = None
    error: str | None = None


@dataclass(slots=True)
class RequestOutput:
    """One prompt and its continuations. The first item of `prompt_logprobs` is None: nothing precedes that token."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    finished: bool = True
    metrics: None = None
    lora_request: None = None
    num_cached_tokens: int = 0
    kv_transfer_params: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """One engine metric: `kind` is `counter` or `gauge`."""

    name: str
    kind: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


def logprob_maps(text: TextProcessor, entries: list[TokenLogprobs]) -> list[dict[int, Logprob]]:
    """A map from token id per position: the token that is there, and the most likely ones."""

    def read(token_id: int) -> str | None:
        return text.tokenizer.token_bytes(token_id).decode("utf-8", "replace") if text.has_tokenizer else None

    maps = []
    for entry in entries:
        known = {entry.token_id: Logprob(entry.logprob, entry.rank, read(entry.token_id))}
        for rank, (token_id, logprob) in enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True), 1):
            known.setdefault(token_id, Logprob(logprob, rank, read(token_id)))
        maps.append(known)
    return maps
