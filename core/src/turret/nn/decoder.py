"""`Decoder`: the one model that runs every `DecoderSpec`.

Owns: the order of a decoder's steps and its buffers. Knows no family and no kernel.

With a PRE block a layer is nine op calls: fused add and norm, qkv, rotary, attention, output, fused add and norm, gate
and up, activation, down (and two norms of queries and keys). A branch's output waits in `x` until the next norm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from turret.contracts.models import ModelContext
from turret.errors import LoadError
from turret.messages import KVGroup
from turret.nn.attention import Attention, AttentionBuffers, AttentionContext, AttentionShape, attention_shape
from turret.nn.context import ForwardContext, Scratch
from turret.nn.factory import LayerFactory
from turret.nn.grouping import kv_groups
from turret.nn.head import Head
from turret.nn.linear import Part
from turret.nn.mlp import MLP, MLPBuffers, MLPSizes
from turret.nn.moe import MoE, MoEBuffers
from turret.nn.norm import Norm
from turret.nn.spec import BlockSpec, DecoderSpec, MLPSpec, MoESpec, Placing
from turret.nn.weights import torch_dtype

__all__ = ["Block", "Decoder"]


@dataclass(slots=True)
class _Step:
    """One forward's buffers: the residual stream, a branch's input and output, all [T, H]; the rest per shape.

    The stream and what joins it are float32 whatever the model's dtype: summed in bfloat16, thirty layers double the
    error of the logits."""

    residual: Tensor
    normed: Tensor
    x: Tensor
    positions: Tensor
    ctx: ForwardContext
    attention: dict[AttentionShape, AttentionBuffers]
    mlp: dict[MLPSpec | MoESpec, Any]


class Block:
    """One layer; `run` is the order that its placing asks for."""

    def __init__(self, index: int, spec: BlockSpec, decoder: DecoderSpec, factory: LayerFactory) -> None:
        prefix, names, hidden = f"layers.{index}", decoder.names, decoder.hidden_size
        layer = names.layer.format(i=index)
        context = AttentionContext(factory, names, hidden, decoder.qk_norm, index)
        self.first = index == 0
        self.attention = Attention(prefix, spec.attention, context)
        sizes = MLPSizes(index, hidden)
        self.mlp: MLP | MoE
        if isinstance(spec.mlp, MoESpec):
            self.mlp = MoE(prefix, spec.mlp, factory, names, sizes)
        else:
            self.mlp = MLP(prefix, spec.mlp, factory, names, sizes)
        self._shape = attention_shape(spec.attention)
        self._mlp_key = spec.mlp
        self._add, self._copy = factory.ops.ops["add"], factory.ops.ops["copy"]

        def norm(target: str, stored: str) -> Norm:
            return factory.norm(f"{prefix}.{target}", layer + stored, hidden, decoder.norm)

        if spec.placing is not Placing.POST:
            self._attn_norm = norm("attn_norm", names.attn_norm)
        if spec.placing in (Placing.PRE, Placing.SANDWICH):
            self._mlp_norm = norm("mlp_norm", names.mlp_norm)
        if spec.placing in (Placing.POST, Placing.SANDWICH):
            self._attn_post_norm = norm("attn_post_norm", names.attn_post_norm)
            self._mlp_post_norm = norm("mlp_post_norm", names.mlp_post_norm)
        runs = {
            Placing.PRE: self._run_pre,
            Placing.POST: self._run_post,
            Placing.SANDWICH: self._run_sandwich,
            Placing.PARALLEL: self._run_parallel,
        }
        self.run = runs[spec.placing]

    def _enter(self, step: _Step) -> None:
        """The block's input, normed; the previous block's branch joins the stream on the way."""
        if self.first:
            self._attn_norm(step.normed, step.residual)
        else:
            self._attn_norm.add(step.normed, step.x, step.residual)

    def _attend(self, out: Tensor, x: Tensor, step: _Step) -> None:
        self.attention(out, x, step.positions, step.attention[self._shape], step.ctx)

    def _run_pre(self, step: _Step) -> None:
        self._enter(step)
        self._attend(step.x, step.normed, step)
        self._mlp_norm.add(step.normed, step.x, step.residual)
        self.mlp(step.x, step.normed, step.mlp[self._mlp_key])

    def _run_sandwich(self, step: _Step) -> None:
        self._enter(step)
        self._attend(step.x, step.normed, step)
        self._attn_post_norm(step.x, step.x)
        self._mlp_norm.add(step.normed, step.x, step.residual)
        self.mlp(step.x, step.normed, step.mlp[self._mlp_key])
        self._mlp_post_norm(step.x, step.x)

    def _run_post(self, step: _Step) -> None:
        if not self.first:
            self._add(step.residual, step.x)
        self._copy(step.normed, step.residual)
        self._attend(step.x, step.normed, step)
        self._attn_post_norm(step.x, step.x)
        self._add(step.residual, step.x)
        self._copy(step.normed, step.residual)
        self.mlp(step.x, step.normed, step.mlp[self._mlp_key])
        self._mlp_post_norm(step.x, step.x)

    def _run_parallel(self, step: _Step) -> None:
        self._enter(step)
        self._attend(step.x, step.normed, step)
        self._add(step.residual, step.x)
        self.mlp(step.x, step.normed, step.mlp[self._mlp_key])


class Decoder:
    """Implements `turret.contracts.Model` for any `DecoderSpec`."""

    def __init__(self, spec: DecoderSpec, ctx: ModelContext) -> None:
        factory: LayerFactory = ctx.layers
        self.spec = spec
        self._max_position = ctx.max_position
        self._dtype = torch_dtype(ctx.dtype)
        folded = _fold_residual_multiplier(spec)
        part = Part(spec.names.embed, spec.vocab_size)
        self._embed = factory.embedding("embed", part, spec.hidden_size, spec.tied)
        self._embed_scale = _rounded(folded.embedding_scale, self._dtype)
        self._blocks = [Block(index, block, folded, factory) for index, block in enumerate(spec.blocks)]
        self._norm = factory.norm("norm", spec.names.norm, spec.hidden_size, folded.norm)
        self._head = Head(spec, factory, self._embed)
        self._ops = factory.ops.ops
        self._shapes = list(dict.fromkeys(attention_shape(block.attention) for block in spec.blocks))
        self._mlps = list(dict.fromkeys(block.mlp for block in spec.blocks))

    def forward(self, ids: Tensor, positions: Tensor, ctx: ForwardContext) -> Tensor:
        """Hidden states [T, H] after the final norm: scratch, good until the next forward."""
        step = self._step(ids, positions, ctx)
        self._embed_ids(step.residual, ids)
        for block in self._blocks:
            block.run(step)
        self._norm.add(step.normed, step.x, step.residual)
        return step.normed

    def logits(self, hidden: Tensor, ctx: ForwardContext) -> Tensor:
        """Float32 logits [n, V] of hidden rows [n, H]: scratch, good until the next call."""
        return self._head(hidden, ctx.scratch)

    def kv_groups(self) -> list[KVGroup]:
        """Layers grouped so that groups are as equal in size as can be."""
        return kv_groups([block.attention.window for block in self.spec.blocks], self._max_position)

    def _step(self, ids: Tensor, positions: Tensor, ctx: ForwardContext) -> _Step:
        rows, scratch, dtype = ids.shape[0], ctx.scratch, self._dtype
        width = (rows, self.spec.hidden_size)
        return _Step(
            residual=scratch.take("residual", width, torch.float32),
            normed=scratch.take("normed", width, dtype),
            x=scratch.take("branch", width, torch.float32),
            positions=positions,
            ctx=ctx,
            attention={shape: AttentionBuffers.take(scratch, shape, rows, dtype) for shape in self._shapes},
            mlp={mlp: self._mlp_buffers(mlp, scratch, rows) for mlp in self._mlps},
        )

    def _mlp_buffers(self, mlp: MLPSpec | MoESpec, scratch: Scratch, rows: int) -> MLPBuffers | MoEBuffers:
        if isinstance(mlp, MoESpec):
            return MoEBuffers.take(scratch, mlp, self.spec.hidden_size, rows, self._dtype)
        return MLPBuffers.take(scratch, mlp, rows, self._dtype)

    def _embed_ids(self, out: Tensor, ids: Tensor) -> None:
        if self._embed.weight is not None:
            self._ops["embedding"](out, ids, self._embed.weight, self._embed_scale)
            return
        assert self._embed.linear is not None
        self._embed.linear.rows(out, ids)
        if self._embed_scale != 1.0:
            self._ops["scale"](out, self._embed_scale)


def _fold_residual_multiplier(spec: DecoderSpec) -> DecoderSpec:
    """Carry the residual stream divided by its multiplier m, so that branches join it unscaled.

    With r' = r / m: r' += branch instead of r += m * branch; the embedding is divided by m once, and norm(r, eps) =
    norm(r', eps / m^2) since norms ignore scale. Exact, and it costs no op. It needs every branch to start with a norm.
    """
    m = spec.residual_multiplier
    if m == 1.0:
        return spec
    if any(block.placing not in (Placing.PRE, Placing.PARALLEL) for block in spec.blocks):
        raise LoadError("a residual multiplier needs blocks that are pre-norm or parallel")
    return replace(spec, embedding_scale=spec.embedding_scale / m, norm=replace(spec.norm, eps=spec.norm.eps / m**2))


def _rounded(scale: float, dtype: torch.dtype) -> float:
    """The scale as a tensor of the model's dtype holds it, which is what models were trained with."""
    return float(torch.tensor(scale, dtype=dtype))
