"""Reference of the op `sample`: sorts, in float64, one row at a time.

Owns: `sample`. Knows no request. Written to be read: it is what providers are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from turret.contracts.sample import SampleFault, SampleOutcome, SampleRow

__all__ = ["sample"]


def sample(out: list[SampleOutcome], logits: Tensor, rows: Sequence[SampleRow]) -> None:
    """logits[B,V] float32, one SampleRow and one outcome each; logits are as they were afterwards."""
    out[:] = [_one(x.double().cpu(), row) for x, row in zip(logits, rows, strict=True)]


def _one(x: Tensor, row: SampleRow) -> SampleOutcome:
    fault = _fault(x)
    if fault:
        return SampleOutcome(-1, fault)
    ruled = _ruled(x, row)
    fault = _fault(ruled)
    if fault:
        return SampleOutcome(-1, SampleFault.NOTHING_LEFT if fault is SampleFault.ALL_MINUS_INFINITY else fault)
    token = _choose(ruled, row)
    if row.logprobs is None:
        return SampleOutcome(token)
    reported = x - torch.logsumexp(x, 0) if row.normalize else x
    values, ids = torch.sort(reported, descending=True, stable=True)
    count = min(row.logprobs, int((values > -torch.inf).sum()))
    return SampleOutcome(
        token, SampleFault.NONE, float(reported[token]), int((x > x[token]).sum()) + 1,
        ids[:count].tolist(), values[:count].tolist(),
    )  # fmt: skip


def _fault(x: Tensor) -> SampleFault:
    if bool(x.isnan().any()):
        return SampleFault.NOT_A_NUMBER
    top = float(x.max())
    if top == torch.inf:
        return SampleFault.INFINITE
    return SampleFault.ALL_MINUS_INFINITY if top == -torch.inf else SampleFault.NONE


def _ruled(x: Tensor, row: SampleRow) -> Tensor:
    """Rules one after the other; each result is rounded to float32, as logits are kept."""
    x = x.clone()
    if row.allowed is not None:
        kept = torch.full_like(x, -torch.inf)
        allowed = torch.from_numpy(row.allowed)
        kept[allowed] = x[allowed]
        x = kept
    if row.mask is not None:
        bits = np.unpackbits(row.mask.view(np.uint8), bitorder="little", count=x.shape[0])
        x[torch.from_numpy(bits == 0)] = -torch.inf
    if row.banned is not None:
        x[torch.from_numpy(row.banned)] = -torch.inf
    if row.bias_ids is not None and row.bias is not None:
        ids = torch.from_numpy(row.bias_ids)
        x[ids] = (x[ids] + torch.from_numpy(row.bias)).float().double()
    if row.seen is not None and row.counts is not None:
        seen, counts = torch.from_numpy(row.seen), torch.from_numpy(row.counts)
        values = torch.where(x[seen] > 0, x[seen] / row.repetition, x[seen] * row.repetition)
        x[seen] = (values - (row.presence * (counts > 0) + row.frequency * counts)).float().double()
    return x


def _choose(x: Tensor, row: SampleRow) -> int:
    if row.temperature == 0:
        return int(x.argmax())
    scaled = (x - x.max()) / row.temperature
    order = torch.sort(x, descending=True, stable=True).indices
    stays = torch.isfinite(x)
    if row.min_p > 0:
        stays &= scaled >= torch.tensor(row.min_p, dtype=torch.float64).log()
    if row.top_k:
        stays[order[row.top_k :]] = False
    weights = torch.where(stays, scaled.exp(), 0.0)
    if row.top_p < 1:
        cumulative = weights[order].cumsum(0)
        last = int(torch.searchsorted(cumulative, row.top_p * float(weights.sum())))
        weights[order[last + 1 :]] = 0.0
    cumulative = weights.cumsum(0)
    token = int(torch.searchsorted(cumulative, row.uniform * float(cumulative[-1]), right=True))
    return min(token, int(torch.nonzero(weights)[-1]))
