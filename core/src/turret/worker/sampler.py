"""From logits to tokens: one row at a time, bit for bit the same in any batch.

Owns: the order of the steps and what is reported. Knows nothing of scheduling or of the model.

Rows are float32 [V] on the host. A batch in which every row only wants its most likely token is answered by one
argmax. Other rows go to a provider's op `sample` where there is one; without, and for what the op does not report, each
goes through its rules, filters and draw here. Either way a row is handled alone and by one thread, so no reduction ever
spans two rows and no result depends on how many there are; which way depends on nothing but the request itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from turret.contracts import SampleFault, SampleOutcome
from turret.messages import TokenLogprobs
from turret.worker.filters import Filters, Softmax, draw, draw_all, survivors
from turret.worker.grammars import forbid
from turret.worker.logprobs import log_normalizer, token_logprobs
from turret.worker.maxima import RowMaxima
from turret.worker.randomness import uniform
from turret.worker.sampling_rows import SamplingRow, SamplingRows

__all__ = ["LOGPROBS_MODES", "Sampled", "Sampler"]

_NOTHING_LEFT = ("allowed_token_ids, bad_words, min_tokens and the form asked for together leave no token to choose "
                 "from")

LOGPROBS_MODES = ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits")


@dataclass(frozen=True, slots=True)
class Sampled:
    """One row's outcome: a token (with log-probabilities if asked for), or an error sentence and no token."""

    token: int | None
    logprobs: TokenLogprobs | None = None
    error: str | None = None


class Sampler:
    """Samples rows of `vocab_size` logits. `mode` says which values log-probabilities report; `op` is a provider's
    `sample`."""

    def __init__(self, vocab_size: int, mode: str = "raw_logprobs", op: Callable[..., None] | None = None) -> None:
        if mode not in LOGPROBS_MODES:
            raise ValueError(f"logprobs mode {mode!r} is none of {', '.join(LOGPROBS_MODES)}")
        self.vocab_size = vocab_size
        self._op = op
        self._op_masks = bool(getattr(op, "masks", False))
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
        state.follow()
        entries = [state[row] for row in rows.tolist()]
        found: list[Sampled | None] = [_follow(entry) for entry in entries]
        places = [i for i, entry in enumerate(entries) if found[i] is None and self._fits(entry)]
        if places:
            own = logits if len(places) == len(entries) else logits[places]
            for i, sampled in zip(places, self._by_op(own, [entries[i] for i in places]), strict=True):
                found[i] = sampled
        with np.errstate(over="ignore"):  # what overflows becomes minus infinity: a weight of zero, as it should
            return [self._one(logits[i], entries[i]) if done is None else done for i, done in enumerate(found)]

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

    def _fits(self, entry: SamplingRow) -> bool:
        """Whether the op serves a row: it reports a few of the most likely tokens, and only raw values."""
        if self._op is None or (entry.rules is not None and entry.rules.largest >= self.vocab_size):
            return False
        if entry.forced is not None:
            return False
        if entry.masked and not self._op_masks:
            return False
        return entry.logprobs is None or not (entry.logprobs < 0 or entry.logprob_ids or self._processed)

    def _by_op(self, logits: NDArray[np.float32], entries: list[SamplingRow]) -> list[Sampled]:
        assert self._op is not None
        asked = [entry.ask(self.vocab_size, self._normalize) for entry in entries]
        out: list[SampleOutcome] = []
        self._op(out, torch.from_numpy(logits), asked)
        return [_sampled(outcome, entry) for outcome, entry in zip(out, entries, strict=True)]

    def _checked(self, token: int, value: float) -> Sampled:
        return Sampled(token) if math.isfinite(value) else Sampled(None, error=_complaint(value))

    def _one(self, x: NDArray[np.float32], entry: SamplingRow) -> Sampled:
        try:
            raw = RowMaxima(x)
            _require_finite(raw.top)
            free = entry.rules is None and not entry.masked
            row = raw if free or entry.forced is not None else self._ruled(x, entry)
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
        np.copyto(self._work, x)
        if entry.rules is not None:
            entry.rules.apply(self._work, entry.ends)
        if entry.grammar is not None and entry.grammar.mask is not None:
            forbid(self._work, entry.grammar.mask)
        row = RowMaxima(self._work)
        if row.top == -np.inf:
            raise ValueError(_NOTHING_LEFT)
        _require_finite(row.top)
        return row

    def _choose(self, row: RowMaxima, entry: SamplingRow) -> tuple[int, NDArray[np.int64] | None]:
        """The token, and the ids that passed the filters (None: all)."""
        if entry.forced is not None:
            return entry.forced, None
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


def _follow(entry: SamplingRow) -> Sampled | None:
    """Wait for the row's grammar, if it has one; its outcome where that failed."""
    if entry.grammar is None:
        return None
    entry.grammar.wait()
    return None if entry.grammar.error is None else Sampled(None, error=entry.grammar.error)


def _sampled(outcome: SampleOutcome, entry: SamplingRow) -> Sampled:
    if outcome.fault:
        return Sampled(None, error=f"sampling failed: {_FAULTS[outcome.fault]}")
    if entry.logprobs is None:
        return Sampled(outcome.token)
    best = list(outcome.best_ids), list(outcome.best_values)
    return Sampled(outcome.token, TokenLogprobs(outcome.token, outcome.value, outcome.rank, *best))


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


_FAULTS = MappingProxyType({
    SampleFault.NOT_A_NUMBER: _complaint(math.nan), SampleFault.INFINITE: _complaint(math.inf),
    SampleFault.ALL_MINUS_INFINITY: _complaint(-math.inf), SampleFault.NOTHING_LEFT: _NOTHING_LEFT,
})  # fmt: skip
