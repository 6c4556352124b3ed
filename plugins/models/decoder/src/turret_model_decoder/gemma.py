"""Gemma: gains of 1 + w, embeddings times sqrt(hidden), tanh gelu, tied head; from 2 on a norm on both sides of each
branch and alternating windows.

Owns: `GEMMA`, `GEMMA2`, `GEMMA3`, `GEMMA3_TEXT_OF_VLM`, `VAULT_GEMMA`. Knows no other family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from turret.nn import DecoderFamily, DecoderSpec, HFConfig, Placing, QKNorm, WeightNames

__all__ = ["GEMMA", "GEMMA2", "GEMMA3", "GEMMA3_TEXT_OF_VLM", "VAULT_GEMMA"]

SANDWICH_NAMES = WeightNames(
    attn_post_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
)

VLM_NAMES = replace(
    SANDWICH_NAMES,
    embed="language_model.model.embed_tokens",
    norm="language_model.model.norm",
    head="language_model.lm_head",
    layer="language_model.model.layers.{i}.",
    ignored=(*SANDWICH_NAMES.ignored, "vision_tower.", "multi_modal_projector."),
)


def _shared(config: HFConfig) -> dict[str, Any]:
    return {
        "norm": config.norm(offset=1.0),
        "qk_norm": config.norm(offset=1.0),
        "tied": bool(config.get("tie_word_embeddings", True)),
        "embedding_scale": config.hidden_size**0.5,
    }


def _gemma(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    blocks = config.blocks(config.attention(), config.mlp(activation="gelu_tanh"))
    return config.decoder(blocks, **_shared(config))


def _windowed(config: HFConfig, placing: Placing, period: int, **attention: Any) -> DecoderSpec:
    """What Gemma 2 and 3 share: every `period`-th layer sees everything, the others a window."""
    config.refuse("use_bidirectional_attention")
    scale = float(config.get("query_pre_attn_scalar", config.head_dim)) ** -0.5
    softcap = float(config.get("attn_logit_softcapping", 0.0))
    made = config.attention(scale=scale, softcap=softcap, **attention)
    blocks = config.blocks(made, config.mlp(activation="gelu_tanh"), placing, config.kinds_every(period))
    cap = float(config.get("final_logit_softcapping", 0.0))
    return config.decoder(blocks, logits_softcap=cap, names=SANDWICH_NAMES, **_shared(config))


def _gemma2(values: Mapping[str, Any]) -> DecoderSpec:
    return _windowed(HFConfig(values), Placing.SANDWICH, period=2)


def _vault_gemma(values: Mapping[str, Any]) -> DecoderSpec:
    """Gemma 2 without the norms after the branches."""
    return _windowed(HFConfig(values), Placing.PRE, period=2)


def _gemma3(values: Mapping[str, Any]) -> DecoderSpec:
    config = HFConfig(values)
    period = int(config.get("sliding_window_pattern", config.get("_sliding_window_pattern", 6)))
    return _windowed(config, Placing.SANDWICH, period, qk_norm=QKNorm.HEAD)


def _gemma3_text_of_vlm(values: Mapping[str, Any]) -> DecoderSpec:
    """The text half of a checkpoint that also sees images; its vision tower is left out."""
    return replace(_gemma3(HFConfig(values).need("text_config")), names=VLM_NAMES)


GEMMA = DecoderFamily(_gemma)
GEMMA2 = DecoderFamily(_gemma2)
GEMMA3 = DecoderFamily(_gemma3)
VAULT_GEMMA = DecoderFamily(_vault_gemma)
GEMMA3_TEXT_OF_VLM = DecoderFamily(_gemma3_text_of_vlm)
