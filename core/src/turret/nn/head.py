"""From hidden states to logits.

Owns: `Head`: the projection (its own or the embedding's), scale and softcap. Knows no sampler.
"""

from __future__ import annotations

import torch
from torch import Tensor

from turret.nn.context import Scratch
from turret.nn.factory import LayerFactory
from turret.nn.linear import Embedding, Linear, Part
from turret.nn.spec import DecoderSpec

__all__ = ["Head"]


class Head:
    """`head(hidden, scratch)`: float32 logits [n, V] of hidden rows [n, H], good until the next call."""

    def __init__(self, spec: DecoderSpec, factory: LayerFactory, embedding: Embedding) -> None:
        self._scale, self._cap = spec.logits_scale, spec.logits_softcap
        self._softcap, self._multiply = factory.ops.ops["softcap"], factory.ops.ops["scale"]
        self._linear: Linear
        if embedding.linear is not None and spec.tied:
            self._linear = embedding.linear
        else:
            part = Part(spec.names.head, spec.vocab_size)
            self._linear = factory.linear("head", [part], spec.hidden_size, spec.head_bias)

    def __call__(self, hidden: Tensor, scratch: Scratch) -> Tensor:
        logits = scratch.take("logits", (hidden.shape[0], self._linear.out_features), torch.float32)
        self._linear(logits, hidden)
        if self._scale != 1.0:
            self._multiply(logits, self._scale)
        if self._cap:
            self._softcap(logits, self._cap)
        return logits
