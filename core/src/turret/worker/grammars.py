"""Grammars of the requests in the batch: which tokens each of them may choose next.

Owns: `Grammars` (restored grammars, and the one thread on which matchers move) and `GrammarRow` (one request's). Knows
no backend and no logits.

A mask is made while the forward that it is for runs: the thread takes the last token to the matcher and fills the mask,
and whoever samples next waits for that, usually for nothing. A matcher is made, and brought
up to what its request has generated before, on the same thread.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from turret.contracts import Grammar, GrammarCompiler, GrammarMatcher, Vocabulary
from turret.messages import GrammarProgram, Request
from turret.worker.setup import GrammarSource

__all__ = ["GrammarRow", "Grammars", "forbid"]

logger = logging.getLogger(__name__)

_NOTHING: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
_KEPT = 128
"""Restored grammars that are kept; those that rows still use stay anyhow."""


class GrammarRow:
    """One request. `begin` and `advance` run on the thread; the rest is read after `wait`.

    While it waits for one of `after` every token may come; at the start one of `starts` may, too, and is then gone on
    with. After a stop id only stop ids may: a step planned ahead samples once more, and with `ignore_eos` all the rest.
    """

    __slots__ = (
        "_after", "_begun", "_ends", "_filled", "_mask", "_matcher", "_starts", "_stops", "_tail", "_waits", "error",
        "pending",
    )  # fmt: skip

    def __init__(self, program: GrammarProgram) -> None:
        self.error: str | None = None
        self.pending: Future[None] | None = None
        self._after = [list(ids) for ids in program.after]
        self._starts = [list(ids) for ids in program.starts]
        self._begun: list[int] = []  # of one of `starts`
        self._waits = bool(program.after) and not program.starts
        self._tail: list[int] = []
        self._matcher: GrammarMatcher | None = None
        self._mask: NDArray[np.int32] | None = None
        self._filled: NDArray[np.int32] = _NOTHING
        self._stops: NDArray[np.int32] = _NOTHING
        self._ends = False

    def wait(self) -> None:
        """Until the mask is that of the next token; then `error` says why there is none, if so."""
        if self.pending is not None:
            self.pending.result()
            self.pending = None

    @property
    def mask(self) -> NDArray[np.int32] | None:
        """Bits of the tokens that may come next, at least as many as there are logits; None: any may."""
        return None if self._waits else self._mask

    @property
    def ends(self) -> bool:
        """Whether nothing but the end may come next."""
        return self._ends

    def begin(self, matcher: GrammarMatcher, stops: NDArray[np.int32], outputs: Sequence[int], words: int) -> None:
        """Bring `matcher` up to what was generated. `stops` is the mask [words of the vocabulary] of stop ids alone;
        logits have `words`."""
        self._matcher, self._stops = matcher, stops
        self._mask = np.zeros(max(words, stops.size), dtype=np.int32)
        self._filled = self._mask[: stops.size]
        for token in outputs:
            self._accept(token)
        self._fill()

    def advance(self, token: int) -> None:
        """Go on with a token."""
        self._accept(token)
        self._fill()

    def _accept(self, token: int) -> None:
        matcher = self._matcher
        if matcher is None:
            return  # it could not be begun, as `error` says
        if self._starts:
            self._open(token)
        if self._waits:
            self._tail = [*self._tail, token][-max(map(len, self._after)) :]
            if any(self._tail[-len(ids) :] == ids for ids in self._after):
                self._waits = False
        elif not self._begun and not matcher.is_terminated() and not matcher.accept(token):
            raise ValueError(f"token {token} does not follow in its grammar")

    def _open(self, token: int) -> None:
        """At the start: whether one of `starts` goes on, or is complete."""
        self._begun.append(token)
        going = [ids for ids in self._starts if ids[: len(self._begun)] == self._begun]
        if any(len(ids) == len(self._begun) for ids in going):
            self._waits, going = True, []
        self._starts = going
        if not going:
            self._begun = []

    def _fill(self) -> None:
        matcher = self._matcher
        if matcher is None or self._waits:
            return
        self._ends = False
        if self._begun:
            self._filled.fill(0)
        elif matcher.is_terminated():
            self._ends = True
            self._filled[:] = self._stops
        else:
            matcher.fill(self._filled)
            self._ends = not self._starts and matcher.is_finished() and not (self._filled & ~self._stops).any()
        for ids in self._starts:
            self._filled.view(np.uint32)[ids[len(self._begun)] >> 5] |= np.uint32(1 << (ids[len(self._begun)] & 31))


class Grammars:
    """Makes rows and moves them on. `source` opens backends; nothing is loaded before the first grammar, or `prepare`,
    asks for it."""

    def __init__(self, source: GrammarSource) -> None:
        self._source = source
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="turret-grammars")
        self._compilers: dict[str, GrammarCompiler] = {}
        self._grammars: OrderedDict[tuple[str, str], Grammar] = OrderedDict()

    def prepare(self) -> None:
        """Load every backend, on the thread; returns at once."""
        self._thread.submit(self._open_all)

    def row(self, request: Request, outputs: Sequence[int], vocab_size: int) -> GrammarRow:
        """The row of a request that has generated `outputs` so far, for logits of `vocab_size`."""
        assert request.grammar is not None
        row = GrammarRow(request.grammar)
        row.pending = self._thread.submit(self._begin, row, request, list(outputs), (vocab_size + 31) // 32)
        return row

    def advance(self, steps: Sequence[tuple[GrammarRow, int]]) -> None:
        """Take one generated token to each of some rows."""
        future = self._thread.submit(_advance, steps)
        for row, _ in steps:
            row.pending = future

    def close(self) -> None:
        """End the thread; safe to repeat."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self, row: GrammarRow, request: Request, outputs: list[int], words: int) -> None:
        program = request.grammar
        assert program is not None
        try:
            stops = _stop_ids(request, self._source.vocabulary())
            mask = _mask_of(stops, self._source.vocabulary().words)
            row.begin(self._grammar(program).matcher(stops), mask, outputs, words)
        except Exception as error:  # whatever a backend raises, it is this request's
            row.error = _sentence(error)

    def _grammar(self, program: GrammarProgram) -> Grammar:
        name = program.backend, program.key
        found = self._grammars.get(name)
        if found is None:
            found = self._grammars[name] = self._compiler(program.backend).restore(program.compiled)
            if len(self._grammars) > _KEPT:
                self._grammars.popitem(last=False)
        self._grammars.move_to_end(name)
        return found

    def _compiler(self, backend: str) -> GrammarCompiler:
        if backend not in self._compilers:
            self._compilers[backend] = self._source.open(backend)
        return self._compilers[backend]

    def _open_all(self) -> None:
        for backend in self._source.names:
            try:
                self._compiler(backend)
            except Exception as error:  # requests that need it will say so
                logger.warning("the structured backend %s cannot be loaded: %s", backend, error)


def forbid(logits: NDArray[np.float32], mask: NDArray[np.int32]) -> None:
    """Leave only the tokens of `mask` in one row of logits [V]."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=logits.size)
    logits[bits == 0] = -np.inf


def _advance(steps: Sequence[tuple[GrammarRow, int]]) -> None:
    for row, token in steps:
        try:
            row.advance(token)
        except Exception as error:  # whatever a backend raises, it is this request's
            row.error = _sentence(error)


def _stop_ids(request: Request, vocabulary: Vocabulary) -> tuple[int, ...]:
    """Ids that end an answer: those of the model, and those of the request that are no text."""
    own = [token for token in request.stop_token_ids
           if token < len(vocabulary.tokens) and not vocabulary.tokens[token]]
    return tuple(dict.fromkeys([*(request.eos_token_ids or vocabulary.stop_ids), *own]))


def _mask_of(tokens: Sequence[int], words: int) -> NDArray[np.int32]:
    bits = np.zeros(words * 32, dtype=np.uint8)
    bits[list(tokens)] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


def _sentence(error: Exception) -> str:
    return f"the grammar of this request failed: {type(error).__name__}: {error}"
