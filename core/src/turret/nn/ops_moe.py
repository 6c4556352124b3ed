"""Reference ops of a mixture of experts, in plain torch.

Owns: `route`, `moe`, `add_gated`; signatures as `turret.contracts.ops`. Knows nothing of layers.

A token's result is a chain of operations on its own numbers: its experts are added in the order of its choice, whoever
else chose them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from turret.contracts.ops import MoECall, Routing

__all__ = ["add_gated", "moe", "route"]


def route(weights: Tensor, ids: Tensor, logits: Tensor, bias: Tensor | None, routing: Routing) -> None:
    """weights[T, K] float32 and ids[T, K] int64 of the K best of E experts, best first, from logits[T, E] float32."""
    scores = logits.softmax(-1) if routing.scoring == "softmax" else logits.sigmoid()
    chosen = torch.topk(scores if bias is None else scores + bias, ids.shape[1], dim=-1).indices
    found = scores.gather(-1, chosen)
    if routing.renormalise:
        found = found / _row_sums(found)
    torch.mul(found, routing.scale, out=weights)
    ids.copy_(chosen)


def moe(call: MoECall) -> None:
    """Tokens sorted by expert, each expert once over its own, then added up token by token."""
    tokens, count = call.ids.shape
    flat = call.ids.flatten()
    order = torch.argsort(flat, stable=True)
    torch.index_select(call.x, 0, order // count, out=call.sorted)
    start = 0
    for expert, size in enumerate(torch.bincount(flat, minlength=len(call.experts)).tolist()):
        if size:
            call.experts[expert](call.results[start : start + size], call.sorted[start : start + size])
        start += size
    call.results.mul_(call.weights.flatten().index_select(0, order)[:, None])
    place = torch.empty_like(order)
    place[order] = torch.arange(tokens * count, device=order.device)
    places = place.view(tokens, count)
    torch.index_select(call.results, 0, places[:, 0].contiguous(), out=call.out)
    for slot in range(1, count):
        call.out.add_(call.results.index_select(0, places[:, slot]))


def add_gated(x: Tensor, y: Tensor, gate: Tensor) -> None:
    """In place: x[T, H] += sigmoid(gate[T, 1]) * y[T, H]."""
    x.addcmul_(y, gate.sigmoid())


def _row_sums(values: Tensor) -> Tensor:
    """[T, 1], added column by column: a reduction's order may depend on the number of rows."""
    total = values[:, :1].clone()
    for column in range(1, values.shape[1]):
        total += values[:, column : column + 1]
    return total
