"""`TorchAttention`: the contract `attention` in plain torch.

Owns: the page layout and the order of a layer's call. Knows no model.
"""

from __future__ import annotations

import math

from torch import Tensor

from turret.contracts import AttentionBatch, AttentionCall, AttentionQuery, KVLayout, KVSpec, Verdict
from turret_attention_torch.compute import Scoring, attend
from turret_attention_torch.metadata import DecodeGroup, PrefillTile, StepMetadata, plan_step
from turret_attention_torch.stored import SIZES, decode, encode, entry_width, raw

__all__ = ["TorchAttention"]

DTYPES = ("float32", "float16", "bfloat16")


class TorchAttention:
    """Attention for any torch device. Pages are [block_size, Hkv, W], key and value of a token side by side."""

    api = "1.0"
    name = "torch"

    def supports(self, query: AttentionQuery) -> Verdict:
        """Everything of the variant `mha` in the three floating types, over a cache of any type."""
        reasons = []
        if query.variant != "mha":
            reasons.append(f"variant {query.variant!r} is not mha")
        for what, dtype, known in (("dtype", query.dtype, DTYPES), ("KV dtype", query.kv_dtype, tuple(SIZES))):
            if dtype not in known:
                reasons.append(f"{what} {dtype} is none of {', '.join(known)}")
        if query.num_heads % query.num_kv_heads:
            reasons.append(f"{query.num_heads} heads do not divide among {query.num_kv_heads} KV heads")
        return Verdict.no(*reasons) if reasons else Verdict.yes()

    def kv_layout(self, spec: KVSpec) -> KVLayout:
        width = entry_width(spec.dtype, spec.head_size, spec.value_head_size)
        shape = (spec.block_size, spec.num_kv_heads, width)
        return KVLayout(shape, spec.dtype, math.prod(shape) * SIZES[spec.dtype])

    def build(self, batch: AttentionBatch) -> StepMetadata:
        return plan_step(batch)

    def run(self, call: AttentionCall) -> None:
        metadata: StepMetadata = call.metadata
        _write(call, metadata)
        scoring = Scoring(call.scale, call.softcap, call.sinks, call.alibi_slopes)
        for group in metadata.decodes:
            _decode(call, group, scoring)
        for tile in metadata.prefills:
            _prefill(call, tile, scoring)


def _write(call: AttentionCall, metadata: StepMetadata) -> None:
    """New keys and values to their slots. A page that begins now is cleared first: what an earlier owner left there
    could be no number at all, and zero times that is not zero."""
    kv = raw(call.kv)
    if metadata.fresh_pages.numel():
        kv.index_fill_(0, metadata.fresh_pages, 0)
    kv.flatten(0, 1).index_copy_(0, metadata.slots, encode(call.k, call.v, call.kv.dtype))


def _gather(call: AttentionCall, pages: Tensor) -> tuple[Tensor, Tensor]:
    """Keys [b, L, Hkv, D] and values [b, L, Hkv, Dv] of pages [b, P], in the dtype of q."""
    found = raw(call.kv).index_select(0, pages.flatten())
    found = found.view(pages.shape[0], -1, *found.shape[2:])
    return decode(found, call.kv.dtype, call.k.shape[-1], call.q.dtype)


def _decode(call: AttentionCall, group: DecodeGroup, scoring: Scoring) -> None:
    k, v = _gather(call, group.pages)
    q = call.q.index_select(0, group.rows)[:, None]
    mixed = attend(q, k, v, group.sight, scoring)
    call.out.index_copy_(0, group.rows, mixed[:, 0])


def _prefill(call: AttentionCall, tile: PrefillTile, scoring: Scoring) -> None:
    k, v = _gather(call, tile.pages[None])
    q = call.q[None, tile.start : tile.stop]
    mixed = attend(q, k, v, tile.sight, scoring)
    call.out[tile.start : tile.stop].copy_(mixed[0])
