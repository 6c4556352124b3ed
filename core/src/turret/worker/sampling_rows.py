"""Sampling parameters of the requests in the batch, as rows.

Owns: what the sampler must know of each row, kept up to date as tokens are appended. Knows no logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from turret.contracts import SampleRow
from turret.messages import Request
from turret.worker.filters import Filters
from turret.worker.penalties import TokenRules
from turret.worker.randomness import uniform

__all__ = ["SamplingRow", "SamplingRows"]


class SamplingRow:
    """One request: `filters` is None when it is greedy, `rules` None when nothing changes its logits."""

    __slots__ = ("_asked", "filters", "logprob_ids", "logprobs", "num_outputs", "rules", "seed")

    def __init__(self, request: Request, outputs: Sequence[int]) -> None:
        sampling = request.sampling
        self.filters = None if sampling.greedy else Filters(
            sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
        self.logprobs = sampling.logprobs
        self.logprob_ids = sampling.logprob_token_ids
        self.seed = request.seed
        self.num_outputs = len(outputs)
        rules = TokenRules(request, outputs)
        self.rules = rules if rules.active else None
        self._asked = SampleRow(logprobs=self.logprobs)
        if self.filters is not None:
            own = self.filters
            self._asked.temperature, self._asked.top_k = own.temperature, own.top_k
            self._asked.top_p, self._asked.min_p = own.top_p, own.min_p

    def ask(self, vocab_size: int, normalize: bool) -> SampleRow:
        """The row as the op `sample` takes it, for the next token; good until the row changes."""
        row = self._asked
        row.normalize = normalize
        if self.filters is not None:
            row.uniform = uniform(self.seed, self.num_outputs)
        if self.rules is not None:
            self.rules.fill(row, vocab_size)
        return row

    @property
    def simple(self) -> bool:
        """True when the row only needs its most likely token."""
        return self.filters is None and self.rules is None and self.logprobs is None

    def append(self, token: int) -> None:
        """Take note of a generated token."""
        self.num_outputs += 1
        if self.rules is not None:
            self.rules.append(token)
            if not self.rules.active:
                self.rules = None
                self._asked.banned = None


class SamplingRows:
    """Rows by number; a row keeps its number as long as its request stays in the batch."""

    def __init__(self, max_rows: int) -> None:
        self._rows: list[SamplingRow | None] = [None] * max_rows
        self._simple = np.ones(max_rows, dtype=bool)

    def set(self, row: int, request: Request, outputs: Sequence[int] = ()) -> None:
        """Put a request, with what it has generated so far, in a row."""
        entry = SamplingRow(request, outputs)
        self._rows[row] = entry
        self._simple[row] = entry.simple

    def clear(self, row: int) -> None:
        """Empty a row."""
        self._rows[row] = None
        self._simple[row] = True

    def append(self, rows: Iterable[int], tokens: Iterable[int]) -> None:
        """Note one generated token for each of `rows`."""
        for row, token in zip(rows, tokens, strict=True):
            entry = self[row]
            entry.append(token)
            self._simple[row] = entry.simple

    def all_simple(self, rows: NDArray[np.int64]) -> bool:
        """Whether every one of `rows` only needs its most likely token."""
        return bool(self._simple[rows].all())

    def __getitem__(self, row: int) -> SamplingRow:
        entry = self._rows[row]
        if entry is None:
            raise IndexError(f"row {row} of the batch is empty")
        return entry
