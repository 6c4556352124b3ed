"""The attention layer: projections, norms of queries and keys, rotary, the backend, and the output projection.

Owns: `Attention` and `AttentionBuffers`. Knows no backend and no page.

Everything a step needs is bound when the model is built; a step only sets tensors on one reused call value.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from turret.contracts.attention import AttentionCall
from turret.nn.context import ForwardContext, Scratch
from turret.nn.factory import LayerFactory
from turret.nn.linear import Part
from turret.nn.spec import AttentionSpec, NormSpec, QKNorm, WeightNames

__all__ = ["Attention", "AttentionBuffers", "AttentionContext", "AttentionShape", "alibi_slopes", "attention_shape"]

AttentionShape = tuple[int, int, int, int]
"""(query heads, KV heads, head size, value head size): layers of one shape share buffers."""


def attention_shape(spec: AttentionSpec) -> AttentionShape:
    return spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.value_head_dim or spec.head_dim


@dataclass(slots=True)
class AttentionBuffers:
    """Scratch of one step for layers of one shape, and the views of it that layers use. T tokens.

    `qkv` [T, Hq D + Hkv D + Hkv Dv]; q, k, v are its heads; `attended` [T, Hq, Dv] and its flat view."""

    qkv: Tensor
    q_flat: Tensor
    k_flat: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    attended: Tensor
    attended_flat: Tensor

    @classmethod
    def take(cls, scratch: Scratch, shape: AttentionShape, rows: int, dtype: torch.dtype) -> AttentionBuffers:
        heads, kv_heads, size, value_size = shape
        widths = [heads * size, kv_heads * size, kv_heads * value_size]
        label = "x".join(map(str, shape))
        qkv = scratch.take(f"qkv.{label}", (rows, sum(widths)), dtype)
        attended = scratch.take(f"attended.{label}", (rows, heads * value_size), dtype)
        q, k, v = torch.split(qkv, widths, dim=1)
        return cls(
            qkv=qkv,
            q_flat=q,
            k_flat=k,
            q=q.view(rows, heads, size),
            k=k.view(rows, kv_heads, size),
            v=v.view(rows, kv_heads, value_size),
            attended=attended.view(rows, heads, value_size),
            attended_flat=attended,
        )


class Attention:
    """`attention(out, x, positions, buffers, ctx)`: out[T, H] from x[T, H]."""

    def __init__(self, prefix: str, spec: AttentionSpec, context: AttentionContext) -> None:
        factory, names, hidden = context.factory, context.names, context.hidden_size
        heads, kv_heads, size, value_size = attention_shape(spec)
        layer = names.layer.format(i=context.index)
        if names.qkv is not None:
            parts = [Part(layer + names.qkv, heads * size + kv_heads * (size + value_size))]
        else:
            widths = (heads * size, kv_heads * size, kv_heads * value_size)
            stored = (names.q, names.k, names.v)
            parts = [Part(layer + name, width) for name, width in zip(stored, widths, strict=True)]
        self.spec = spec
        self.index = factory.attention_layer(spec)
        self._qkv = factory.linear(f"{prefix}.qkv", parts, hidden, spec.qkv_bias)
        self._o = factory.linear(f"{prefix}.o", [Part(layer + names.o, hidden)], heads * value_size, spec.out_bias)
        self._table = None if spec.rope is None else factory.rotary(spec.rope)
        self._interleaved = spec.rope is not None and spec.rope.interleaved
        self._rotary = factory.ops.ops["rotary"]
        self._whole = spec.qk_norm is QKNorm.WHOLE
        self._normed = spec.qk_norm is not QKNorm.NONE
        if self._normed:
            q_size, k_size = (heads * size, kv_heads * size) if self._whole else (size, size)
            self._q_norm = factory.norm(f"{prefix}.q_norm", layer + names.q_norm, q_size, context.qk_norm)
            self._k_norm = factory.norm(f"{prefix}.k_norm", layer + names.k_norm, k_size, context.qk_norm)
        self._sinks = factory.vector(f"{prefix}.sinks", layer + names.sinks, (heads,)) if spec.sinks else None
        slopes = alibi_slopes(heads, factory.device) if spec.alibi else None
        nothing = torch.empty(0)
        self._call = AttentionCall(
            q=nothing, k=nothing, v=nothing, kv=nothing, metadata=None, out=nothing, scale=spec.scale,
            softcap=spec.softcap, alibi_slopes=slopes,
        )  # fmt: skip

    def __call__(
        self, out: Tensor, x: Tensor, positions: Tensor, buffers: AttentionBuffers, ctx: ForwardContext
    ) -> None:
        self._qkv(buffers.qkv, x)
        if self._normed and not self.spec.qk_norm_after_rope:
            self._norm_heads(buffers)
        if self._table is not None:
            self._rotary(buffers.q, buffers.k, self._table, positions, self._interleaved)
        if self._normed and self.spec.qk_norm_after_rope:
            self._norm_heads(buffers)
        call, state = self._call, ctx.attention
        call.q, call.k, call.v, call.out = buffers.q, buffers.k, buffers.v, buffers.attended
        call.kv, call.metadata = state.kv[self.index], state.metadata[self.index]
        if self._sinks is not None:
            call.sinks = self._sinks.value
        state.backend.run(call)
        self._o(out, buffers.attended_flat)

    def _norm_heads(self, buffers: AttentionBuffers) -> None:
        if self._whole:
            self._q_norm(buffers.q_flat, buffers.q_flat)
            self._k_norm(buffers.k_flat, buffers.k_flat)
        else:
            self._q_norm(buffers.q, buffers.q)
            self._k_norm(buffers.k, buffers.k)


@dataclass(frozen=True)
class AttentionContext:
    """What the layers of a decoder share, and which layer this is."""

    factory: LayerFactory
    names: WeightNames
    hidden_size: int
    qk_norm: NormSpec
    index: int


def alibi_slopes(heads: int, device: str) -> Tensor:
    """Slopes [heads] of linear biases (Press 2021): a geometric series; for other than powers of two, every other
    slope of the next power is interleaved at the end."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes, dtype=torch.float32, device=device)
