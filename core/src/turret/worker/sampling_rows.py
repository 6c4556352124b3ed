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
from turret.worker.grammars import GrammarRow, Grammars
from turret.worker.penalties import TokenRules
from turret.worker.randomness import uniform
from turret.worker.thinking import ThinkingRow

__all__ = ["SamplingRow", "SamplingRows"]


class SamplingRow:
    """One request: `filters` is None when it is greedy, `rules` None when nothing changes its logits, `grammar` None
    when any text will do, `thinking` None when reasoning may take as long as it likes."""

    __slots__ = ("_asked", "filters", "grammar", "logprob_ids", "logprobs", "num_outputs", "rules", "seed", "thinking")

    def __init__(self, request: Request, outputs: Sequence[int], grammar: GrammarRow | None = None) -> None:
        sampling = request.sampling
        self.grammar = grammar
        self.thinking = None if request.thinking is None else ThinkingRow(request.thinking, outputs)
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
        if self.grammar is not None:
            row.mask = self.grammar.mask
        if self.rules is not None:
            self.rules.fill(row, vocab_size, self.ends)
        return row

    @property
    def forced(self) -> int | None:
        """The token that must come next whatever the logits say; None while any may."""
        return None if self.thinking is None else self.thinking.forced

    @property
    def ends(self) -> bool:
        """Whether the grammar leaves nothing but the end."""
        return self.grammar is not None and self.grammar.ends

    @property
    def masked(self) -> bool:
        """Whether a grammar decides about the next token."""
        return self.grammar is not None and self.grammar.mask is not None

    @property
    def simple(self) -> bool:
        """True when the row only needs its most likely token."""
        free = self.rules is None and self.grammar is None and self.thinking is None
        return free and self.filters is None and self.logprobs is None

    def append(self, token: int) -> None:
        """Take note of a generated token."""
        self.num_outputs += 1
        if self.thinking is not None:
            self.thinking.append(token)
            if self.thinking.done:
                self.thinking = None
        if self.rules is not None:
            self.rules.append(token)
            if not self.rules.active:
                self.rules = None
                self._asked.banned = None


class SamplingRows:
    """Rows by number; a row keeps its number as long as its request stays in the batch."""

    def __init__(self, max_rows: int, vocab_size: int = 0, grammars: Grammars | None = None) -> None:
        self._vocab_size = vocab_size
        self._grammars = grammars
        self._moved: list[tuple[GrammarRow, int]] = []
        self._rows: list[SamplingRow | None] = [None] * max_rows
        self._simple = np.ones(max_rows, dtype=bool)

    def set(self, row: int, request: Request, outputs: Sequence[int] = ()) -> None:
        """Put a request, with what it has generated so far, in a row."""
        grammar = None
        if request.grammar is not None:
            if self._grammars is not None:
                grammar = self._grammars.row(request, outputs, self._vocab_size)
            else:
                grammar = GrammarRow(request.grammar)
                grammar.error = "this worker follows no grammars: it has no structured backend, or no tokenizer"
        entry = SamplingRow(request, outputs, grammar)
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
            if entry.grammar is not None and self._grammars is not None:
                self._moved.append((entry.grammar, token))

    def follow(self) -> None:
        """Take generated tokens to their grammars, on another thread: to be called when a forward begins, since until
        then the interpreter has other things to do."""
        if self._moved and self._grammars is not None:
            moved, self._moved = self._moved, []
            self._grammars.advance(moved)

    def all_simple(self, rows: NDArray[np.int64]) -> bool:
        """Whether every one of `rows` only needs its most likely token."""
        return bool(self._simple[rows].all())

    def __getitem__(self, row: int) -> SamplingRow:
        entry = self._rows[row]
        if entry is None:
            raise IndexError(f"row {row} of the batch is empty")
        return entry
