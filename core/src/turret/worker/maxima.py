"""Finding the largest entries of a row of logits without sorting it.

Owns: `RowMaxima`, an index over one row. Knows nothing of probabilities or requests.

The row is cut into groups whose maxima are found in one pass. The k-th largest group maximum is a lower bound on the
k-th largest entry, so only groups that reach it can hold any of the k best: a few groups instead of the vocabulary.
Only comparisons happen here, hence every answer is exact and the same wherever the row lies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowMaxima"]

_MEMBERS = 64
"""Entries per group. Group g of n holds entries g, g + n, g + 2n, ...: so a pass over the row is contiguous."""


class RowMaxima:
    """One row `x` float32 [V] and its group maxima. The row must not change afterwards.

    `top` is the largest entry; it is NaN when any entry is.
    """

    __slots__ = ("_groups", "_head", "_maxima", "_tail", "top", "x")

    def __init__(self, x: NDArray[np.float32]) -> None:
        self.x = x
        self._groups = x.size // _MEMBERS
        cut = self._groups * _MEMBERS
        self._head = x[:cut].reshape(_MEMBERS, self._groups)
        self._maxima = self._head.max(axis=0)
        self._tail = x[cut:]
        tops = [part.max() for part in (self._maxima, self._tail) if part.size]
        self.top = float(np.max(tops))

    def bound(self, k: int) -> float:
        """A lower bound on the k-th largest entry; minus infinity when the groups are too few to tell."""
        if k > self._groups:
            return -np.inf
        return float(np.partition(self._maxima, self._groups - k)[self._groups - k])

    def at_least(self, threshold: float) -> NDArray[np.int64]:
        """Ids of the entries >= threshold, ascending; entries of minus infinity never count."""
        limit = np.float32(threshold)
        if limit == -np.inf:
            return np.flatnonzero(self.x > limit)
        columns = np.flatnonzero(self._maxima >= limit)
        if 4 * columns.size > self._groups:
            return np.flatnonzero(self.x >= limit)
        member, column = np.nonzero(self._head[:, columns] >= limit)
        ids = member * self._groups + columns[column]
        tail = np.flatnonzero(self._tail >= limit)
        return np.concatenate((ids, tail + self._head.size)) if tail.size else ids

    def largest(self, k: int) -> NDArray[np.int64]:
        """Ids of the k largest entries, best first; equal entries in order of id; fewer when fewer are finite."""
        ids = self.at_least(self.bound(k))
        order = np.argsort(-self.x[ids], kind="stable")[:k]
        return ids[order]
