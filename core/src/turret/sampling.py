"""Sampling parameters: what a caller may ask of the sampler, validated once.

Owns: `SamplingParams`, its ranges and the messages of its errors. Knows nothing of tokenizers, models or queues: rules
that need a vocabulary or a context length (`logit_bias` keys, `allowed_token_ids`, `max_logprobs`) are checked where
those are known, by `check_against_model`.

Names, ranges and defaults follow those that users of vLLM know.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from turret.errors import RequestError
from turret.structured import StructuredOutputsParams, structured_outputs

__all__ = ["GREEDY_EPSILON", "MAX_N", "MIN_TEMPERATURE", "RepetitionDetection", "SamplingParams"]

GREEDY_EPSILON = 1e-5
"""A temperature below this is greedy."""
MIN_TEMPERATURE = 0.01
"""Temperatures between greedy and this are raised to it: dividing logits by less only makes infinities."""
MAX_N = 16384
MAX_SEED = 2**63 - 1
MAX_STRINGS, MAX_STRING_CHARACTERS = 1024, 16384
"""Stop strings, and bad words, of one request: how many, and their characters together."""
MAX_LOGPROB_TOKEN_IDS = 128
MAX_PATTERN = 512
"""Tokens of the longest pattern that repetition detection looks for: its cost for each token."""
_LOG = logging.getLogger(__name__)


class RepetitionDetection(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a sequence whose last tokens are one pattern of `min_pattern_size` to `max_pattern_size` tokens, `min_count`
    times in a row."""

    max_pattern_size: int
    min_pattern_size: int = 1
    min_count: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.max_pattern_size <= MAX_PATTERN:
            raise _repetition_error(
                f"max_pattern_size must be between 1 and {MAX_PATTERN}, got {self.max_pattern_size}"
            )
        if not 0 <= self.min_pattern_size <= self.max_pattern_size:
            raise _repetition_error(
                f"min_pattern_size must be between 0 and max_pattern_size ({self.max_pattern_size}), "
                f"got {self.min_pattern_size}"
            )
        if self.min_count < 2:
            raise _repetition_error(f"min_count must be at least 2, got {self.min_count}")


def _repetition_error(what: str) -> RequestError:
    return RequestError(f"a repetition's {what}", "repetition_detection")


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to choose tokens for one prompt.

    Raises `RequestError` (a `ValueError`) naming the field when a value is out of range.
    `max_tokens=None` means up to the context length. `top_k` 0 or -1, `top_p` 1, `min_p` 0 switch those filters off.
    `logprob_token_ids` are the alternatives that `logprobs` reports, in this order, instead of the most likely ones.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    repetition_detection: RepetitionDetection | None = None
    structured_outputs: StructuredOutputsParams | None = None
    extra_args: dict[str, Any] | None = None
    skip_reading_prefix_cache: bool | None = None

    def __post_init__(self) -> None:
        _normalize(self)
        _check_penalties(self)
        _check_filters(self)
        _check_lengths(self)
        _check_token_lists(self)
        _check_stops(self)

    @property
    def greedy(self) -> bool:
        """True when the most likely token is always taken."""
        return self.temperature < GREEDY_EPSILON

    @property
    def stop_strings(self) -> list[str]:
        """`stop` as a list; empty when there is none."""
        return self.stop if isinstance(self.stop, list) else []

    def replace(self, **changes: Any) -> SamplingParams:
        """A copy with `changes`, validated again."""
        return msgspec.structs.replace(self, **changes)

    def check_against_model(self, vocab_size: int, max_logprobs: int) -> None:
        """Check what only a model can tell.

        `vocab_size` bounds every token id; `max_logprobs` (-1 = no bound) bounds `logprobs` and `prompt_logprobs`.
        """
        for field, ids in (
            ("logit_bias", self.logit_bias or ()),
            ("allowed_token_ids", self.allowed_token_ids or ()),
            ("stop_token_ids", self.stop_token_ids or ()),
            ("logprob_token_ids", self.logprob_token_ids or ()),
        ):
            _check_in_vocab(field, ids, vocab_size)
        for field, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if count is None or max_logprobs < 0:
                continue
            wanted = vocab_size if count == -1 else count
            if wanted > max_logprobs:
                raise RequestError(
                    f"{field}={count} asks for more than this server allows ({max_logprobs}); "
                    "ask for fewer or start the server with a larger --max-logprobs",
                    field,
                )


def _set(params: SamplingParams, field: str, value: Any) -> None:
    msgspec.structs.force_setattr(params, field, value)


def _normalize(p: SamplingParams) -> None:
    """Fold equivalent spellings into one, so that nobody else has to know them."""
    for field in ("logprobs", "prompt_logprobs"):
        value = getattr(p, field)
        if value is True:
            _set(p, field, 1)
        elif value is False:
            _set(p, field, None)
    _require_finite(p)
    form: Any = p.structured_outputs
    if isinstance(form, dict):
        _set(p, "structured_outputs", structured_outputs(form))
    if isinstance(p.stop, str):
        _set(p, "stop", [p.stop])
    if p.seed == -1:
        _set(p, "seed", None)
    if p.top_k == -1:
        _set(p, "top_k", 0)
    if GREEDY_EPSILON <= p.temperature < MIN_TEMPERATURE:
        _LOG.warning("temperature %g is raised to %g; 0 means greedy", p.temperature, MIN_TEMPERATURE)
        _set(p, "temperature", MIN_TEMPERATURE)
    if 0 <= p.temperature < GREEDY_EPSILON:
        for field, neutral in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)):
            value = getattr(p, field)
            if _filter_in_range(field, value):
                _set(p, field, neutral)
    if p.stop_token_ids:
        _set(p, "stop_token_ids", list(dict.fromkeys(p.stop_token_ids)))
    if p.prompt_logprobs is not None and p.skip_reading_prefix_cache is None:
        _set(p, "skip_reading_prefix_cache", True)


def _require_finite(p: SamplingParams) -> None:
    for field in ("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "min_p"):
        value = getattr(p, field)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise RequestError(f"{field} must be a finite number, got {value!r}", field)
    for field in ("n", "top_k", "min_tokens"):
        value = getattr(p, field)
        if isinstance(value, bool) or not isinstance(value, int):
            raise RequestError(f"{field} must be an integer, got {value!r}", field)
    for field in ("seed", "max_tokens", "logprobs", "prompt_logprobs"):
        value = getattr(p, field)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise RequestError(f"{field} must be an integer or null, got {value!r}", field)


def _filter_in_range(field: str, value: float) -> bool:
    if field == "top_p":
        return 0 < value <= 1
    if field == "top_k":
        return value >= 0
    return 0 <= value <= 1


def _check_penalties(p: SamplingParams) -> None:
    for field in ("presence_penalty", "frequency_penalty"):
        if not -2 <= getattr(p, field) <= 2:
            raise RequestError(f"{field} must be in [-2, 2], got {getattr(p, field)}", field)
    if p.repetition_penalty <= 0:
        raise RequestError(
            f"repetition_penalty must be greater than zero, got {p.repetition_penalty}", "repetition_penalty"
        )


def _check_filters(p: SamplingParams) -> None:
    if p.temperature < 0:
        raise RequestError(f"temperature must be non-negative, got {p.temperature}", "temperature")
    if not _filter_in_range("top_p", p.top_p):
        raise RequestError(f"top_p must be in (0, 1], got {p.top_p}", "top_p")
    if not _filter_in_range("top_k", p.top_k):
        raise RequestError(f"top_k must be 0 (disable), -1 (disable) or at least 1, got {p.top_k}", "top_k")
    if not _filter_in_range("min_p", p.min_p):
        raise RequestError(f"min_p must be in [0, 1], got {p.min_p}", "min_p")
    if not 1 <= p.n <= MAX_N:
        raise RequestError(f"n must be between 1 and {MAX_N}, got {p.n}", "n")
    if p.greedy and p.n > 1:
        raise RequestError(f"n must be 1 when using greedy sampling (temperature 0), got {p.n}", "n")
    if p.seed is not None and not -MAX_SEED - 1 <= p.seed <= MAX_SEED:
        raise RequestError(f"seed must fit in 64 signed bits, got {p.seed}", "seed")


def _check_lengths(p: SamplingParams) -> None:
    if p.max_tokens is not None and p.max_tokens < 1:
        raise RequestError(f"max_tokens must be at least 1, got {p.max_tokens}", "max_tokens")
    if p.min_tokens < 0:
        raise RequestError(f"min_tokens must be at least 0, got {p.min_tokens}", "min_tokens")
    if p.max_tokens is not None and p.min_tokens > p.max_tokens:
        raise RequestError(
            f"min_tokens must be at most max_tokens ({p.max_tokens}), got {p.min_tokens}", "min_tokens"
        )
    for field in ("logprobs", "prompt_logprobs"):
        count = getattr(p, field)
        if count is not None and count < -1:
            raise RequestError(f"{field} must be -1 (all) or at least 0, got {count}", field)


def _check_token_lists(p: SamplingParams) -> None:
    if p.extra_args:
        raise RequestError(
            "extra_args is read by logits-processor plugins, and this version loads none; leave it out", "extra_args"
        )
    for field in ("stop_token_ids", "allowed_token_ids", "logprob_token_ids"):
        ids = getattr(p, field)
        if ids is not None and not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
            raise RequestError(f"{field} must contain only integers", field)
    if p.allowed_token_ids is not None and not p.allowed_token_ids:
        raise RequestError("allowed_token_ids must not be empty: with no token allowed nothing can be generated",
                           "allowed_token_ids")
    if p.logprob_token_ids and len(p.logprob_token_ids) > MAX_LOGPROB_TOKEN_IDS:
        raise RequestError(
            f"logprob_token_ids may hold {MAX_LOGPROB_TOKEN_IDS} ids, got {len(p.logprob_token_ids)}",
            "logprob_token_ids",
        )
    if p.logprob_token_ids and p.logprobs is None:
        raise RequestError("logprob_token_ids needs logprobs", "logprob_token_ids")
    for token, bias in (p.logit_bias or {}).items():
        if not isinstance(token, int) or not isinstance(bias, (int, float)) or not math.isfinite(bias):
            raise RequestError(
                f"logit_bias must map token ids to finite numbers, got {token!r}: {bias!r}", "logit_bias"
            )
    if p.logit_bias:
        # Only now: clamping turns not-a-number into a number.
        _set(p, "logit_bias", {token: max(-100.0, min(100.0, bias)) for token, bias in p.logit_bias.items()})


def _check_stops(p: SamplingParams) -> None:
    for field, strings in (("stop", p.stop_strings), ("bad_words", p.bad_words or [])):
        size = sum(map(len, strings))
        if len(strings) > MAX_STRINGS or size > MAX_STRING_CHARACTERS:
            raise RequestError(
                f"{field} may hold {MAX_STRINGS} strings of {MAX_STRING_CHARACTERS} characters together, got "
                f"{len(strings)} of {size}",
                field,
            )
    if p.stop_strings and any(not s for s in p.stop_strings):
        raise RequestError("stop must not contain an empty string", "stop")
    if p.stop_strings and not p.detokenize:
        raise RequestError("stop strings need detokenize=True; use stop_token_ids instead", "stop")
    if p.bad_words and any(not w for w in p.bad_words):
        raise RequestError("bad_words must not contain an empty string", "bad_words")


def _check_in_vocab(field: str, ids: Iterable[int] | Mapping[int, float], vocab_size: int) -> None:
    bad = [i for i in ids if not 0 <= i < vocab_size]
    if bad:
        raise RequestError(
            f"{field} contains token ids outside the vocabulary of {vocab_size} tokens: {bad[:10]}", field
        )
