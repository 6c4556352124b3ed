"""Llama and the families that differ from it by a bias, a norm or an activation.

Owns: `LLAMA`, `MISTRAL`, `SEED_OSS`, `ARCEE`, `NEMOTRON`, `STARCODER2`, `STABLELM`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turret.nn import FULL, SLIDING, DecoderFamily, DecoderSpec, HFConfig, WeightNames

__all__ = ["ARCEE", "LLAMA", "MISTRAL", "NEMOTRON", "SEED_OSS", "STABLELM", "STARCODER2"]


def _llama(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    return config.decoder(config.blocks(config.attention(), config.mlp()))


def _mistral(values: Mapping[str, Any]) -> DecoderSpec:
    """Every layer has the window, if there is one at all."""
    config = HFConfig(values)
    kind = SLIDING if config.get("sliding_window") else FULL
    kinds = config.get("layer_types", [kind] * config.num_layers)
    return config.decoder(config.blocks(config.attention(), config.mlp(), kinds=kinds))


def _seed_oss(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    attention = config.attention(out_bias=bool(config.get("attention_out_bias", False)))
    return config.decoder(config.blocks(attention, config.mlp()))


def _arcee(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    return config.decoder(config.blocks(config.attention(), config.mlp(gated=False)))


def _nemotron(values: Mapping[str, Any]) -> DecoderSpec:
    """LayerNorm with gain 1 + w, and squared relu."""
    config = HFConfig(values)
    norm = config.norm(kind="layer", eps=float(config.get("norm_eps", 1e-5)), offset=1.0, bias=True)
    return config.decoder(config.blocks(config.attention(), config.mlp(gated=False)), norm=norm)


def _starcoder2(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    bias = bool(config.get("use_bias", True))
    names = WeightNames(up="mlp.c_fc", down="mlp.c_proj")
    norm = config.norm(kind="layer", eps=float(config.get("norm_epsilon", 1e-5)), bias=True)
    kind = SLIDING if config.get("sliding_window") else FULL
    blocks = config.blocks(
        config.attention(qkv_bias=bias, out_bias=bias),
        config.mlp(gated=False, bias=bias),
        kinds=[kind] * config.num_layers,
    )
    return config.decoder(blocks, norm=norm, names=names, tied=bool(config.get("tie_word_embeddings", True)))


def _stablelm(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    config.refuse("qk_layernorm", "use_parallel_residual")
    attention = config.attention(qkv_bias=bool(config.get("use_qkv_bias", False)), out_bias=False)
    norm = config.norm(kind="layer", eps=float(config.get("layer_norm_eps", 1e-5)), bias=True)
    return config.decoder(config.blocks(attention, config.mlp()), norm=norm)


LLAMA = DecoderFamily(_llama)
MISTRAL = DecoderFamily(_mistral)
SEED_OSS = DecoderFamily(_seed_oss)
ARCEE = DecoderFamily(_arcee)
NEMOTRON = DecoderFamily(_nemotron)
STARCODER2 = DecoderFamily(_starcoder2)
STABLELM = DecoderFamily(_stablelm)
