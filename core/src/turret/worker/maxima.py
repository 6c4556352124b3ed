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
    """One row `x` float32 [V] and, once asked for, its group maxima. The row must not change afterwards.

    `top` is the largest entry; it is NaN when any entry is.
    """

    __slots__ = ("_found", "_groups", "top", "x")

    def __init__(self, x: NDArray[np.float32]) -> None:
        self.x = x
        self.top = float(x.max())
        self._groups = x.size // _MEMBERS
        self._found: NDArray[np.float32] | None = None

    @property
    def _head(self) -> NDArray[np.float32]:
        """The entries that fill whole groups, [members, groups]; fewer than `_MEMBERS` remain behind them."""
        return self.x[: self._groups * _MEMBERS].reshape(_MEMBERS, self._groups)

    @property
    def _maxima(self) -> NDArray[np.float32]:
        if self._found is None:
            self._found = self._head.max(axis=0)
        return self._found

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
        behind = self._groups * _MEMBERS
        tail = np.flatnonzero(self.x[behind:] >= limit)
        return np.concatenate((ids, tail + behind)) if tail.size else ids

    def largest(self, k: int) -> NDArray[np.int64]:
        """Ids of the k largest entries, best first; equal entries in order of id; fewer when fewer are finite."""
        ids = self.at_least(self.bound(k))
        order = np.argsort(-self.x[ids], kind="stable")[:k]
        return ids[order]
