"""Choosing one token of one row: temperature, top-k, top-p, min-p, and the draw.

Owns: which tokens survive and how a uniform number picks one. Knows nothing of requests, seeds or other rows.

Order of the filters: min-p (relative to the most likely token), top-k, then top-p over what is left. Ties are settled
by token id, lower first, so that top-k keeps exactly k tokens. The draw inverts the cumulative distribution in
vocabulary order. A row is handled alone and by one thread, so its result cannot depend on the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turret.worker.maxima import RowMaxima

__all__ = ["Filters", "Softmax", "draw", "draw_all", "survivors"]

_BLOCK = 2048
"""Weights summed in one go; the draw searches the block sums first, then one block."""
_NARROW_NUCLEUS = (32, 256)
"""Groups looked at first when searching a nucleus, before all tokens are."""
_BINS = 4096
_DEPTH = 24.0
"""Bins of the search among all tokens, and how deep they reach (in units of log-probability)."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Parameters of one row. `top_k` 0, `top_p` 1 and `min_p` 0 are off; `temperature` is positive."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def none(self) -> bool:
        """True when every token stays."""
        return self.top_k == 0 and self.top_p >= 1.0 and self.min_p == 0.0


class Softmax:
    """exp((x - max) / temperature) over a whole row, with the sums of its blocks.

    `weights` is scratch that the caller lends, float32 [V]; `sums` float64 [blocks]; `cumulative` their running sums.
    """

    __slots__ = ("cumulative", "sums", "weights")

    def __init__(self, row: RowMaxima, temperature: float, scratch: NDArray[np.float32]) -> None:
        weights = np.subtract(row.x, np.float32(row.top), out=scratch)
        if temperature != 1.0:
            np.multiply(weights, np.float32(1.0 / temperature), out=weights)
        self.weights = np.exp(weights, out=weights)
        cut = weights.size - weights.size % _BLOCK
        sums = weights[:cut].reshape(-1, _BLOCK).sum(axis=1).astype(np.float64)
        tail = weights[cut:].sum(dtype=np.float64)
        self.sums: NDArray[np.float64] = np.append(sums, tail)
        self.cumulative = np.cumsum(self.sums)

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self.cumulative[-1])


def draw(weights: NDArray[np.float64], uniform: float) -> int:
    """Index of the entry that `uniform` in [0, 1) falls on; entries of zero weight are never chosen."""
    cumulative = np.cumsum(weights)
    index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return min(index, int(np.flatnonzero(weights)[-1])) if index >= weights.size else index


def draw_all(softmax: Softmax, uniform: float) -> int:
    """Token id that `uniform` falls on in a whole row."""
    block = draw(softmax.sums, uniform)
    before = float(softmax.cumulative[block - 1]) if block else 0.0
    weights = softmax.weights[block * _BLOCK : (block + 1) * _BLOCK].astype(np.float64)
    rest = (uniform * softmax.total - before) / float(softmax.sums[block])
    return block * _BLOCK + draw(weights, min(max(rest, 0.0), 1.0))


def survivors(
    row: RowMaxima, filters: Filters, scratch: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids (ascending) and unnormalised weights of the tokens that pass the filters."""
    if filters.top_k == 0 and filters.min_p == 0.0:
        return _nucleus_of_all(row, filters, scratch)
    ids = row.largest(filters.top_k) if filters.top_k else _likely(row, filters)
    if filters.top_k and filters.min_p:
        ids = ids[_scaled(row, ids, filters.temperature) >= math.log(filters.min_p)]
    ids = np.sort(ids)
    weights = np.exp(_scaled(row, ids, filters.temperature))
    if filters.top_p < 1.0:
        return _nucleus(ids, weights, filters.top_p * float(weights.sum()))
    return ids, weights


def _scaled(row: RowMaxima, ids: NDArray[np.int64], temperature: float) -> NDArray[np.float64]:
    return (row.x[ids].astype(np.float64) - row.top) / temperature


def _likely(row: RowMaxima, filters: Filters) -> NDArray[np.int64]:
    """Tokens whose probability is at least min_p times the largest."""
    log_ratio = math.log(filters.min_p)
    threshold = np.nextafter(np.float32(row.top + filters.temperature * log_ratio), np.float32(-np.inf))
    ids = row.at_least(float(threshold))
    return ids[_scaled(row, ids, filters.temperature) >= log_ratio]


def _nucleus(
    ids: NDArray[np.int64], weights: NDArray[np.float64], mass: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The fewest most likely tokens that weigh at least `mass` together; `ids` ascend."""
    order = np.argsort(-weights, kind="stable")
    count = int(np.searchsorted(np.cumsum(weights[order]), mass, side="left")) + 1
    kept = np.sort(order[:count])
    return ids[kept], weights[kept]


def _nucleus_of_all(
    row: RowMaxima, filters: Filters, scratch: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The nucleus of a whole row: looked for among the best groups first, since it mostly lies there."""
    softmax = Softmax(row, filters.temperature, scratch)
    mass = filters.top_p * softmax.total
    for groups in _NARROW_NUCLEUS:
        ids = row.at_least(row.bound(groups))
        weights = np.exp(_scaled(row, ids, filters.temperature))
        if weights.sum() >= mass:
            return _nucleus(ids, weights, mass)
    ids = _wide_nucleus(row, filters.temperature, softmax, mass)
    return ids, np.exp(_scaled(row, ids, filters.temperature))


def _wide_nucleus(row: RowMaxima, temperature: float, softmax: Softmax, mass: float) -> NDArray[np.int64]:
    """A nucleus of many tokens, without sorting them: a histogram by depth below the largest entry finds the bin where
    the mass is reached; only that bin is sorted. Cutting into bins keeps the order, so the answer is exact."""
    depth = np.subtract(np.float32(row.top), row.x)
    np.multiply(depth, np.float32(_BINS / (_DEPTH * temperature)), out=depth)
    bins = np.minimum(depth, np.float32(_BINS - 1), out=depth).astype(np.int64)
    cumulative = np.cumsum(np.bincount(bins, weights=softmax.weights, minlength=_BINS))
    last = min(int(np.searchsorted(cumulative, mass, side="left")), _BINS - 1)
    inside = np.flatnonzero(bins == last)
    before = float(cumulative[last - 1]) if last else 0.0
    kept, _ = _nucleus(inside, np.exp(_scaled(row, inside, temperature)), mass - before)
    return np.sort(np.concatenate((np.flatnonzero(bins < last), kept)))
