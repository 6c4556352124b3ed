"""Values of the op `sample`: what a row asks for and what it came to.

Owns: `SampleRow` and `SampleOutcome`. Knows no kernel and no request.

One uniform number decides a row (docs/decisions/0003): rules change single logits, filters choose which tokens stay,
and the number inverts the cumulative distribution of what stays, in the order of ids.

Order of the rules: allowed ids, the mask, banned ids, bias, then penalties of seen ids (repetition, then presence and
frequency).
Order of the filters: min-p (relative to the most likely token), top-k, then top-p over what is left. Of equal logits
the lower id comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SampleFault", "SampleOutcome", "SampleRow"]


class SampleFault(IntEnum):
    """Why a row has no token: its logits, or rules that forbid every one."""

    NONE = 0
    NOT_A_NUMBER = 1
    INFINITE = 2
    ALL_MINUS_INFINITY = 3
    NOTHING_LEFT = 4


@dataclass(slots=True)
class SampleRow:
    """One row. `temperature` 0 takes the most likely token; `top_k` 0, `top_p` 1 and `min_p` 0 are off; `uniform` lies
    in [0, 1). Rules that are None are off; arrays are contiguous, every id is within the vocabulary, `allowed` ascends
    and is not empty, `seen` are distinct and `counts` say how often each was generated (0: it is in the prompt only).

    `mask` holds a bit for each token, bit i of word w for token 32 * w + i, and may be longer than the vocabulary: a
    token without its bit must not come. Only an op that says so gets one: a callable with a true `masks`.

    `logprobs` None: no log-probabilities, else how many of the most likely tokens to report. They are of the logits
    before any rule, and the logits themselves where `normalize` is off.
    """

    uniform: float = 0.0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    allowed: NDArray[np.int64] | None = None
    banned: NDArray[np.int64] | None = None
    bias_ids: NDArray[np.int64] | None = None
    bias: NDArray[np.float32] | None = None
    seen: NDArray[np.int64] | None = None
    counts: NDArray[np.float64] | None = None
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    mask: NDArray[np.int32] | None = None
    logprobs: int | None = None
    normalize: bool = True


@dataclass(frozen=True, slots=True)
class SampleOutcome:
    """A row's token, or the fault that kept it from one; with `logprobs`, the token's log-probability, its rank (one
    more than the number of tokens strictly more likely) and the most likely ids with theirs, best first, none of them
    minus infinity."""

    token: int
    fault: SampleFault = SampleFault.NONE
    value: float = 0.0
    rank: int = 0
    best_ids: Sequence[int] = ()
    best_values: Sequence[float] = ()
