"""Tiny models with made-up weights: any architecture, any attention backend, any ops, without an engine.

Owns how such a model is built and fed in chunks; `ModelDriver` runs the steps. Knows no family and no backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from turret.contracts import AttentionBackend, ModelArchitecture, ModelContext, OpProvider
from turret.nn import AttentionSpec, BlockSpec, Decoder, DecoderSpec, LayerFactory, MLPSpec, OpTable, RopeSpec
from turret.testing.model_driver import DriverSettings, ModelDriver
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
        self._dtype = setting.dtype
        self._backend = setting.backend or ReferenceAttention()
        self.factory = LayerFactory(setting.dtype, setting.device, longest, OpTable.resolve(setting.providers))
        self.model = architecture.build(config, ModelContext(setting.dtype, setting.device, longest, self.factory))
        self.factory.fill_random(setting.seed)
        self.factory.finish()
        self._longest = longest

    def logits(self, prompts: Sequence[Sequence[int]], chunk: int) -> list[Tensor]:
        """Float32 logits [len(prompt), V] of each prompt, all prompts in one batch, at most `chunk` tokens a step."""
        blocks = len(prompts) * -(-self._longest // BLOCK_SIZE) * len(self.model.kv_groups())
        rows = sum(min(chunk, len(prompt)) for prompt in prompts)
        settings = DriverSettings(BLOCK_SIZE, 2 * blocks + 2, rows, self._dtype)
        driver = ModelDriver(self.model, self.factory, self._backend, settings)
        parts: list[list[Tensor]] = [[] for _ in prompts]
        for start in range(0, max(len(prompt) for prompt in prompts), chunk):
            cut = {str(number): list(prompt[start : start + chunk]) for number, prompt in enumerate(prompts)}
            for name, logits in driver.step({name: ids for name, ids in cut.items() if ids}).items():
                parts[int(name)].append(logits.clone().cpu())
        return [torch.cat(part) for part in parts]


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
