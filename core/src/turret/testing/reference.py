"""References: attention written out in float64, and a backend made of it.

Owns the arithmetic that numeric cases compare with. Written for clarity: loops over requests, no paging tricks.

Shapes as in the contract: T tokens, Hq/Hkv heads, D and Dv head sizes, L tokens seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from turret.contracts import AttentionBatch, AttentionCall, AttentionQuery, KVLayout, KVSpec, Verdict

__all__ = ["Mask", "ReferenceAttention", "attend", "slots_of"]


@dataclass(frozen=True, slots=True)
class Mask:
    """What a query sees. `window` w: key k is seen from q if q - k < w (and k - q < w when `bidirectional`)."""

    window: int | None = None
    bidirectional: bool = False


def attend(call: AttentionCall, q: Tensor, kv: tuple[Tensor, Tensor], mask: Mask) -> Tensor:
    """Float64 [t, Hq, Dv]: q [t, Hq, D] are the last t of the L tokens of kv ([L, Hkv, D], [L, Hkv, Dv])."""
    tokens, heads, _ = q.shape
    keys, values = (part.double().repeat_interleave(heads // part.shape[1], dim=1) for part in kv)
    length = keys.shape[0]
    scores = torch.einsum("thd,lhd->htl", q.double(), keys) * call.scale
    if call.softcap > 0:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    here = torch.arange(length - tokens, length)[:, None]
    there = torch.arange(length)[None, :]
    if call.alibi_slopes is not None:
        scores = scores + call.alibi_slopes.double().cpu()[:, None, None] * (there - here)
    hidden = torch.zeros(tokens, length, dtype=torch.bool) if mask.bidirectional else there > here
    if mask.window is not None:
        hidden = hidden | (here - there >= mask.window) | (there - here >= mask.window)
    scores = scores.masked_fill(hidden, float("-inf"))
    if call.sinks is not None:
        sink = call.sinks.double().cpu()[:, None, None].expand(heads, tokens, 1)
        weights = torch.cat((scores, sink), dim=-1).softmax(dim=-1)[..., :-1]
    else:
        weights = scores.softmax(dim=-1)
    return torch.einsum("htl,lhd->thd", weights, values)


def slots_of(batch: AttentionBatch, request: int, length: int) -> Tensor:
    """Slots [length] (page * block_size + offset) of a request's tokens, oldest first."""
    positions = torch.arange(length)
    pages = batch.block_table[request].long().cpu()
    return pages[positions // batch.block_size] * batch.block_size + positions % batch.block_size


class ReferenceAttention:
    """The contract `attention`, by the reference above. Serves everything of the variant mha on any CPU dtype."""

    api = "1.0"
    name = "testing_reference"

    def supports(self, query: AttentionQuery) -> Verdict:
        if query.variant != "mha":
            return Verdict.no(f"the reference knows no {query.variant} attention")
        return Verdict.yes()

    def kv_layout(self, spec: KVSpec) -> KVLayout:
        shape = (spec.block_size, spec.num_kv_heads, spec.head_size + spec.value_head_size)
        item = torch.empty(0, dtype=getattr(torch, spec.dtype)).element_size()
        return KVLayout(shape, spec.dtype, shape[0] * shape[1] * shape[2] * item)

    def build(self, batch: AttentionBatch) -> AttentionBatch:
        return batch

    def run(self, call: AttentionCall) -> None:
        batch: AttentionBatch = call.metadata
        size = call.k.shape[-1]
        tokens = call.kv.flatten(0, 1)
        tokens[batch.slot_mapping] = torch.cat((call.k, call.v), dim=-1).to(tokens.dtype)
        mask = Mask(batch.window, batch.bidirectional)
        for request, length in enumerate(batch.seq_lens_list):
            first, last = batch.query_start_list[request], batch.query_start_list[request + 1]
            seen = tokens[slots_of(batch, request, length)]
            mixed = attend(call, call.q[first:last], (seen[..., :size], seen[..., size:]), mask)
            call.out[first:last] = mixed.to(call.out.dtype)
