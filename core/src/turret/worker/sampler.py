"""From logits to tokens: one row at a time, bit for bit the same in any batch.

Owns: the order of the steps and what is reported. Knows nothing of scheduling or of the model.

Rows are float32 [V] on the host. A batch in which every row only wants its most likely token is answered by one
argmax. Any other row goes through its rules, filters and draw alone and on this thread, so no reduction ever spans two
rows and no result depends on how many there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turret.messages import TokenLogprobs
from turret.worker.filters import Filters, Softmax, draw, draw_all, survivors
from turret.worker.logprobs import log_normalizer, token_logprobs
from turret.worker.maxima import RowMaxima
from turret.worker.randomness import uniform
from turret.worker.sampling_rows import SamplingRow, SamplingRows

__all__ = ["LOGPROBS_MODES", "Sampled", "Sampler"]

LOGPROBS_MODES = ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits")


@dataclass(frozen=True, slots=True)
class Sampled:
    """One row's outcome: a token (with log-probabilities if asked for), or an error sentence and no token."""

    token: int | None
    logprobs: TokenLogprobs | None = None
    error: str | None = None


class Sampler:
    """Samples rows of `vocab_size` logits. `mode` says which values log-probabilities report."""

    def __init__(self, vocab_size: int, mode: str = "raw_logprobs") -> None:
        if mode not in LOGPROBS_MODES:
            raise ValueError(f"logprobs mode {mode!r} is none of {', '.join(LOGPROBS_MODES)}")
        self.vocab_size = vocab_size
        self._processed = mode.startswith("processed")
        self._normalize = mode.endswith("logprobs")
        self._work = np.empty(vocab_size, dtype=np.float32)
        self._scratch = np.empty(vocab_size, dtype=np.float32)

    def sample(
        self, logits: NDArray[np.float32], rows: NDArray[np.int64], state: SamplingRows
    ) -> list[Sampled]:
        """Choose a token for each row of `logits` [n, V]; `rows` [n] are their numbers in `state`."""
        if state.all_simple(rows):
            return [self._checked(token, value) for token, value in _argmax(logits)]
        with np.errstate(over="ignore"):  # what overflows becomes minus infinity: a weight of zero, as it should
            return [self._one(logits[i], state[int(row)]) for i, row in enumerate(rows)]

    def chosen(self, tokens: NDArray[np.int64], values: NDArray[np.float32]) -> list[Sampled]:
        """Rows whose most likely token [n] is known already, with its logit [n]."""
        return [self._checked(token, value) for token, value in zip(tokens.tolist(), values.tolist(), strict=True)]

    def prompt_logprobs(
        self, logits: NDArray[np.float32], tokens: Sequence[int], count: int
    ) -> list[TokenLogprobs]:
        """What each row of `logits` [n, V] says of the prompt token that follows it; no rules apply to prompts."""
        found = []
        for x, token in zip(logits, tokens, strict=True):
            row = RowMaxima(x)
            _require_finite(row.top)
            shift = log_normalizer(row, self._scratch) if self._normalize else 0.0
            found.append(token_logprobs(row, token, count, shift))
        return found

    def _checked(self, token: int, value: float) -> Sampled:
        return Sampled(token) if math.isfinite(value) else Sampled(None, error=_complaint(value))

    def _one(self, x: NDArray[np.float32], entry: SamplingRow) -> Sampled:
        try:
            raw = RowMaxima(x)
            _require_finite(raw.top)
            row = raw if entry.rules is None else self._ruled(x, entry)
            token, kept = self._choose(row, entry)
            logprobs = None
            if entry.logprobs is not None:
                reported = self._reported(row, entry.filters, kept) if self._processed else raw
                shift = log_normalizer(reported, self._scratch) if self._normalize else 0.0
                logprobs = token_logprobs(reported, token, entry.logprobs, shift, entry.logprob_ids)
            return Sampled(token, logprobs)
        except (ArithmeticError, ValueError, IndexError) as error:
            return Sampled(None, error=f"sampling failed: {error}")

    def _ruled(self, x: NDArray[np.float32], entry: SamplingRow) -> RowMaxima:
        assert entry.rules is not None
        np.copyto(self._work, x)
        entry.rules.apply(self._work)
        row = RowMaxima(self._work)
        if row.top == -np.inf:
            raise ValueError("allowed_token_ids, bad_words and min_tokens together leave no token to choose from")
        _require_finite(row.top)
        return row

    def _choose(self, row: RowMaxima, entry: SamplingRow) -> tuple[int, NDArray[np.int64] | None]:
        """The token, and the ids that passed the filters (None: all)."""
        if entry.filters is None:
            return int(row.x.argmax()), None
        u = uniform(entry.seed, entry.num_outputs)
        if entry.filters.none:
            return draw_all(Softmax(row, entry.filters.temperature, self._scratch), u), None
        ids, weights = survivors(row, entry.filters, self._scratch)
        return int(ids[draw(weights, u)]), ids

    def _reported(self, row: RowMaxima, filters: Filters | None, kept: NDArray[np.int64] | None) -> RowMaxima:
        """The processed logits: after rules, divided by the temperature, filtered tokens at minus infinity."""
        if filters is None:
            return row
        scaled = row.x / np.float32(filters.temperature)
        if kept is None:
            return RowMaxima(scaled)
        values = np.full(scaled.size, -np.inf, dtype=np.float32)
        values[kept] = scaled[kept]
        return RowMaxima(values)


def _argmax(logits: NDArray[np.float32]) -> list[tuple[int, float]]:
    tokens = logits.argmax(axis=1)
    values = logits[np.arange(len(tokens)), tokens]
    return list(zip(tokens.tolist(), values.tolist(), strict=True))


def _complaint(value: float) -> str:
    kind = "not-a-number values" if math.isnan(value) else f"a largest value of {value}"
    return f"the model's logits for this request hold {kind}; its weights or the request's numbers are out of range"


def _require_finite(value: float) -> None:
    if not math.isfinite(value):
        raise ArithmeticError(_complaint(value))
