"""A compiled grammar tried before anybody follows it: random answers for a few dozen tokens.

Owns: `check_grammar`. Knows no backend.

A grammar can be small and still take seconds for each token (ambiguous recursion), or match nothing. The trial is no
proof; it finds what is wrong from the start, in the process that may be killed.
"""

from __future__ import annotations

import random
import time

import numpy as np
from numpy.typing import NDArray

from turret.contracts import Grammar, GrammarMatcher, Vocabulary
from turret.errors import RequestError
from turret.grammars.limits import CompileLimits

__all__ = ["allowed_ids", "check_grammar"]

_WALKS = 3


def allowed_ids(mask: NDArray[np.int32]) -> NDArray[np.int64]:
    """The tokens of a mask, ascending."""
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))


def check_grammar(grammar: Grammar, vocabulary: Vocabulary, limits: CompileLimits) -> None:
    """Walk; raises `RequestError` for a grammar that nothing matches or whose tokens take too long."""
    chance = random.Random(0)
    mask = np.zeros(vocabulary.words, dtype=np.int32)
    deadline = time.monotonic() + limits.trial_seconds
    for _ in range(_WALKS):
        if time.monotonic() > deadline:
            return
        _walk(grammar.matcher(vocabulary.stop_ids), mask, chance, limits)


def _walk(matcher: GrammarMatcher, mask: NDArray[np.int32], chance: random.Random, limits: CompileLimits) -> None:
    began = time.process_time()  # of this process: a busy machine makes no grammar ambiguous
    for step in range(limits.trial_steps):
        before = time.process_time()
        matcher.fill(mask)
        ids = allowed_ids(mask)
        if not ids.size:
            if step == 0:
                raise RequestError("no text matches it")
            return
        accepted = matcher.accept(int(ids[chance.randrange(ids.size)]))
        spent = time.process_time() - before
        if spent > limits.step_seconds and step > 1:  # the first ones may make what later ones use
            raise RequestError(f"it is too ambiguous: one token of it takes {spent:.2f} s")
        if not accepted or matcher.is_terminated() or before - began > limits.trial_seconds:
            return
