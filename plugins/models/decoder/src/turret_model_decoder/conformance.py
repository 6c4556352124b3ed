"""Tiny configs, one per family, for the conformance kit.

Owns: `samples`. Knows no weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from turret.testing import ModelSample

__all__ = ["samples"]

TINY: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
    }
)

DIFFERENCES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "LlamaForCausalLM": {"attention_bias": True},
        "LLaMAForCausalLM": {},
        "MistralForCausalLM": {"sliding_window": 8},
        "SeedOssForCausalLM": {"attention_bias": True},
        "ArceeForCausalLM": {"hidden_act": "relu2"},
        "NemotronForCausalLM": {"hidden_act": "relu2", "partial_rotary_factor": 0.5},
        "Starcoder2ForCausalLM": {"hidden_act": "gelu_pytorch_tanh", "sliding_window": 8},
        "StableLmForCausalLM": {"partial_rotary_factor": 0.25},
        "Qwen2ForCausalLM": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
        "Qwen3ForCausalLM": {},
        "MixtralForCausalLM": {"num_local_experts": 4, "num_experts_per_tok": 2},
        "Qwen2MoeForCausalLM": {
            "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40, "decoder_sparse_step": 2,
        },
        "Qwen3MoeForCausalLM": {
            "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True,
        },
        "OlmoeForCausalLM": {"num_experts": 4, "num_experts_per_tok": 2},
        "GemmaForCausalLM": {},
        "Gemma2ForCausalLM": {"sliding_window": 8, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        "Gemma3ForCausalLM": {"sliding_window": 8, "num_hidden_layers": 6, "rope_local_base_freq": 10000.0},
        "Phi3ForCausalLM": {},
        "SmolLM3ForCausalLM": {},
        "GraniteForCausalLM": {"residual_multiplier": 0.3, "embedding_multiplier": 4.0, "logits_scaling": 2.0},
        "OlmoForCausalLM": {},
        "Olmo2ForCausalLM": {},
        "Olmo3ForCausalLM": {"sliding_window": 8},
        "CohereForCausalLM": {},
        "Cohere2ForCausalLM": {"sliding_window": 8},
        "GlmForCausalLM": {"attention_bias": True, "partial_rotary_factor": 0.5},
        "Glm4ForCausalLM": {"attention_bias": True, "partial_rotary_factor": 0.5},
        "Ernie4_5ForCausalLM": {"use_bias": True},
        "Exaone4ForCausalLM": {"sliding_window": 8},
        "HunYuanDenseV1ForCausalLM": {},
        "PhiForCausalLM": {"hidden_act": "gelu_new", "partial_rotary_factor": 0.5},
        "VaultGemmaForCausalLM": {"sliding_window": 8},
        "CwmForCausalLM": {"sliding_window": 8},
    }
)
"""What a family's config says besides TINY."""


def samples() -> list[ModelSample]:
    """One config per architecture, in the keys of raw config.json."""
    flat = [
        ModelSample(name, {"architectures": [name], **TINY, **differences}) for name, differences in DIFFERENCES.items()
    ]
    text = {**TINY, **DIFFERENCES["Gemma3ForCausalLM"]}
    nested = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    return [*flat, ModelSample("Gemma3ForConditionalGeneration", nested, vocab_size=int(TINY["vocab_size"]))]
