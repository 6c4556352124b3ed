"""Log-probabilities of one row, for chosen tokens and for prompts.

Owns: the values, ranks and best alternatives that are reported. Knows nothing of how a token was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turret.messages import TokenLogprobs
from turret.worker.filters import Softmax
from turret.worker.maxima import RowMaxima

__all__ = ["log_normalizer", "token_logprobs"]


def log_normalizer(row: RowMaxima, scratch: NDArray[np.float32]) -> float:
    """log(sum(exp(x))) of a row whose largest entry is finite."""
    return row.top + math.log(Softmax(row, 1.0, scratch).total)


def token_logprobs(
    row: RowMaxima, token: int, count: int, shift: float, chosen: Sequence[int] | None = None
) -> TokenLogprobs:
    """Value (x - shift), rank and the `count` best tokens (-1: all), or the `chosen` ones, at one position.

    The rank is one more than the number of tokens that are strictly more likely.
    """
    value = row.x[token]
    rank = int(np.count_nonzero(row.x > value)) + 1
    if chosen:
        best = np.array(chosen, dtype=np.int64)
    else:
        best = row.largest(row.x.size if count < 0 else count) if count else np.zeros(0, dtype=np.int64)
    values = row.x[best].astype(np.float64) - shift
    return TokenLogprobs(token, float(value) - shift, rank, best.tolist(), values.tolist())
