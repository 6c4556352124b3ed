"""Tiny models run step by step: any architecture, any attention backend, any ops, without an engine.

Owns the loop that feeds tokens in chunks through pages. Knows no family and no backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from turret.contracts import AttentionBackend, ModelArchitecture, ModelContext, OpProvider
from turret.nn import (
    AttentionSpec,
    AttentionState,
    BlockSpec,
    Decoder,
    DecoderSpec,
    ForwardContext,
    LayerFactory,
    MLPSpec,
    OpTable,
    RopeSpec,
    Scratch,
)
from turret.testing.batches import Pages, make_batch
from turret.testing.reference import ReferenceAttention

__all__ = ["Setting", "TinyModel", "tiny_decoder"]

BLOCK_SIZE = 8


@dataclass(frozen=True)
class Setting:
    """What a tiny model runs on; by default the references, in float32."""

    dtype: str = "float32"
    backend: AttentionBackend | None = None
    providers: tuple[OpProvider, ...] = ()
    device: str = "cpu"
    seed: int = 0


class TinyModel:
    """A model with made-up weights (the same for the same seed) and a cache for requests of up to `longest` tokens."""

    def __init__(
        self, architecture: ModelArchitecture, config: Mapping[str, Any], setting: Setting, longest: int = 64
    ) -> None:
        self._setting = setting
        self._backend = setting.backend or ReferenceAttention()
        self.factory = LayerFactory(setting.dtype, setting.device, longest, OpTable.resolve(setting.providers))
        self.model = architecture.build(config, ModelContext(setting.dtype, setting.device, longest, self.factory))
        self.factory.fill_random(setting.seed)
        self.factory.finish()
        self._longest = longest

    def logits(self, prompts: Sequence[Sequence[int]], chunk: int) -> list[Tensor]:
        """Float32 logits [len(prompt), V] of each prompt, all prompts in one batch, at most `chunk` tokens a step."""
        pages = Pages.scattered([self._longest] * len(prompts), BLOCK_SIZE)
        caches = self._caches(pages)
        scratch = Scratch(sum(min(chunk, len(prompt)) for prompt in prompts), self._setting.device)
        rows: list[list[Tensor]] = [[] for _ in prompts]
        done = [0] * len(prompts)
        while any(count < len(prompt) for count, prompt in zip(done, prompts, strict=True)):
            spans = {i: min(chunk, len(p) - done[i]) for i, p in enumerate(prompts) if done[i] < len(p)}
            # Requests with one token come first, as a scheduler would order them.
            order = sorted(spans, key=lambda i: (spans[i] != 1, i))
            out = self._step(prompts, [(i, done[i], spans[i]) for i in order], (pages, caches, scratch))
            start = 0
            for i in order:
                rows[i].append(out[start : start + spans[i]])
                start += spans[i]
                done[i] += spans[i]
        return [torch.cat(parts) for parts in rows]

    def _caches(self, pages: Pages) -> list[Tensor]:
        layouts = [self._backend.kv_layout(spec) for spec in self.factory.kv_specs(BLOCK_SIZE, self._setting.dtype)]
        caches = [torch.zeros(pages.num_blocks, *layout.page_shape) for layout in layouts]
        dtypes = [getattr(torch, layout.dtype) for layout in layouts]
        return [cache.to(self._setting.device, dtype) for cache, dtype in zip(caches, dtypes, strict=True)]

    def _step(
        self,
        prompts: Sequence[Sequence[int]],
        spans: Sequence[tuple[int, int, int]],
        state: tuple[Pages, list[Tensor], Scratch],
    ) -> Tensor:
        """One forward; spans are (request, cached, new). Logits [T, V] on the CPU."""
        pages, caches, scratch = state
        device = self._setting.device
        mine = Pages(pages.table[[request for request, _, _ in spans]], pages.block_size, pages.num_blocks)
        shape = [(cached, new) for _, cached, new in spans]
        metadata: list[Any] = [None] * len(caches)
        for group in self.model.kv_groups():
            built = self._backend.build(make_batch(mine, shape, group.window))
            for layer in group.layers:
                metadata[layer] = built
        ids = [token for request, cached, new in spans for token in prompts[request][cached : cached + new]]
        positions = [position for _, cached, new in spans for position in range(cached, cached + new)]
        attention = AttentionState(self._backend, caches, metadata)
        context = ForwardContext(dict(self.factory.ops.ops), scratch, attention)
        hidden = self.model.forward(torch.tensor(ids, device=device), torch.tensor(positions, device=device), context)
        return self.model.logits(hidden, context).clone().cpu()


class _TinyDecoder:
    """A decoder of two layers with grouped-query attention, one of them with a sliding window."""

    api = "1.0"

    def __init__(self, window: int | None) -> None:
        whole = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25, rope=RopeSpec(16))
        second = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25, rope=RopeSpec(16), window=window)
        blocks = tuple(BlockSpec(attention, MLPSpec(48)) for attention in (whole, second))
        self._spec = DecoderSpec(vocab_size=96, hidden_size=64, blocks=blocks)

    def attention_needs(self, config: Mapping[str, Any]) -> Sequence[Any]:
        raise NotImplementedError("a tiny model is built directly, without a choice of backend")

    def build(self, config: Mapping[str, Any], ctx: ModelContext) -> Decoder:
        return Decoder(self._spec, ctx)

    def weights(self, config: Mapping[str, Any]) -> Any:
        raise NotImplementedError("a tiny model's weights are made up")


def tiny_decoder(setting: Setting, *, window: int | None = 6) -> TinyModel:
    """The decoder that end-to-end cases of backends and platforms run."""
    return TinyModel(_TinyDecoder(window), {}, setting)
