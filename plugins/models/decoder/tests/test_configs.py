"""Configs as they come: raw keys mean what transformers makes of them, and unknown switches are refused."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import pytest
import transformers

from turret.errors import LoadError, NotSupportedError
from turret.nn import DecoderFamily, DecoderSpec

SIZES: dict[str, Any] = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 4096, "rope_theta": 50000.0, "tie_word_embeddings": False,
    "rms_norm_eps": 1e-5,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
RAW: list[tuple[str, str, dict[str, Any]]] = [
    ("Llama", "LlamaConfig", {"rope_scaling": LLAMA3}),
    ("Mistral", "MistralConfig", {"sliding_window": 512, "head_dim": 16}),
    ("Mistral", "MistralConfig", {"sliding_window": None, "head_dim": 16}),
    ("Qwen2", "Qwen2Config", {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 5}),
    ("Qwen2", "Qwen2Config", {"use_sliding_window": False, "sliding_window": 512, "max_window_layers": 5}),
    ("Qwen3", "Qwen3Config", {"head_dim": 32, "rope_scaling": YARN}),
    ("Gemma2", "Gemma2Config", {"head_dim": 32, "sliding_window": 512, "query_pre_attn_scalar": 20,
                                "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
    ("Gemma3", "Gemma3TextConfig", {"head_dim": 32, "sliding_window": 512, "rope_local_base_freq": 10000.0,
                                    "query_pre_attn_scalar": 20,
                                    "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ("Phi3", "Phi3Config", {"original_max_position_embeddings": 1024,
                            "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}}),
    ("SmolLM3", "SmolLM3Config", {}),
    ("Cohere2", "Cohere2Config", {"sliding_window": 512, "sliding_window_pattern": 4, "head_dim": 16}),
    ("Glm", "GlmConfig", {"head_dim": 16, "partial_rotary_factor": 0.5, "attention_bias": True}),
    ("Nemotron", "NemotronConfig", {"head_dim": 16, "partial_rotary_factor": 0.5, "hidden_act": "relu2"}),
]  # fmt: skip


def family(name: str) -> DecoderFamily:
    (entry,) = entry_points(group="turret.models", name=f"{name}ForCausalLM")
    found: DecoderFamily = entry.load()
    return found


def spec(name: str, values: dict[str, Any]) -> DecoderSpec:
    return family(name).spec(values)


@pytest.mark.parametrize(("name", "config_class", "values"), RAW, ids=lambda v: v if isinstance(v, str) else "")
def test_raw_keys_mean_what_transformers_makes_of_them(name: str, config_class: str, values: dict[str, Any]) -> None:
    raw = {**SIZES, **values}
    normalised = getattr(transformers, config_class)(**raw).to_dict()
    assert spec(name, raw) == spec(name, normalised)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Cohere", {"use_qk_norm": True}),
        ("StableLm", {"use_parallel_residual": True}),
        ("Olmo", {"clip_qkv": 8.0}),
        ("Gemma3", {"use_bidirectional_attention": True, "sliding_window": 8}),
    ],
)
def test_switches_that_are_not_supported_are_refused(name: str, values: dict[str, Any]) -> None:
    with pytest.raises(NotSupportedError, match=f"config.json asks for {next(iter(values))}"):
        spec(name, {**SIZES, **values})


def test_faulty_configs_are_named() -> None:
    with pytest.raises(LoadError, match=r"config\.json lacks vocab_size"):
        spec("Llama", {key: value for key, value in SIZES.items() if key != "vocab_size"})
    with pytest.raises(NotSupportedError, match="layer 0 is of the kind 'chunked_attention'"):
        spec("Llama", {**SIZES, "layer_types": ["chunked_attention"] * 8})
    with pytest.raises(NotSupportedError, match="activation 'xielu'"):
        spec("Llama", {**SIZES, "hidden_act": "xielu"})
    with pytest.raises(LoadError, match="lacks sliding_window"):
        spec("Llama", {**SIZES, "layer_types": ["sliding_attention"] * 8})
