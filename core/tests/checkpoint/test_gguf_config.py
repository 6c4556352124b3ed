"""Configs rebuilt from GGUF metadata: complete and normalised as transformers' own config classes would have them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from turret.checkpoint import config_from_gguf, locate_demo, normalized_config, open_gguf, resolve
from turret.errors import LoadError, NotSupportedError

WriteGguf = Callable[..., Path]

# What transformers adds to every config and no decoder reads.
NOISE = {
    "transformers_version", "output_hidden_states", "return_dict", "dtype", "chunk_size_feed_forward",
    "is_encoder_decoder", "id2label", "label2id", "problem_type", "initializer_range", "_name_or_path",
    "output_attentions", "pretraining_tp", "_sliding_window_pattern",
}  # fmt: skip


def metadata(arch: str, **extra: Any) -> dict[str, Any]:
    """Metadata of a tiny model: 6 layers, width 64, 4 heads of 16, 2 KV heads."""
    base: dict[str, Any] = {
        "block_count": 6,
        "context_length": 512,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **{key.replace("__", "."): value for key, value in extra.items()},
    }
    ids = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}
    return {f"{arch}.{key}": value for key, value in base.items()} | ids


def embedding() -> dict[str, np.ndarray]:
    return {"token_embd.weight": np.zeros((96, 64), np.float32)}


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"rope__freq_base": 500000.0},
    "qwen2": {"rope__freq_base": 1000000.0},
    "qwen3": {"attention__key_length": 32},
    "gemma2": {"attention__key_length": 16, "attention__sliding_window": 64, "attn_logit_softcapping": 50.0},
    "gemma3": {"attention__key_length": 16, "attention__sliding_window": 64},
    "phi3": {"rope__dimension_count": 12, "attention__sliding_window": 64},
    "smollm3": {},
    "granite": {"attention__scale": 0.0625, "embedding_scale": 12.0, "residual_scale": 0.25, "logit_scale": 8.0},
    "olmo2": {},
    "qwen2moe": {"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32,
                 "expert_shared_feed_forward_length": 64},
    "qwen3moe": {"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32},
    "olmoe": {"expert_count": 6, "expert_used_count": 2},
}


@pytest.mark.parametrize("arch", FAMILIES)
def test_config_is_what_transformers_would_normalise_it_to(write_gguf: WriteGguf, arch: str) -> None:
    config = config_from_gguf(open_gguf(write_gguf(arch, metadata(arch, **FAMILIES[arch]), embedding())))
    full = CONFIG_MAPPING[config["model_type"]].from_dict(dict(config)).to_dict()
    changed = {k: (v, full[k]) for k, v in config.items() if full.get(k, v) != v}
    assert changed == {}
    # Nothing that matters is left to a default nobody saw.
    assert set(full) - set(config) - NOISE == set()
    assert config["vocab_size"] == 96
    assert config["tie_word_embeddings"] is True
    assert config["rms_norm_eps"] == 1e-5


def test_facts_of_each_family(write_gguf: WriteGguf) -> None:
    def build(arch: str, tensors: dict[str, np.ndarray] | None = None, **extra: Any) -> dict[str, Any]:
        path = write_gguf(arch, metadata(arch, **(FAMILIES[arch] | extra)), embedding() | (tensors or {}))
        return config_from_gguf(open_gguf(path))

    gemma3 = build("gemma3", rope__scaling__type="linear", rope__scaling__factor=8.0)
    assert gemma3["architectures"] == ["Gemma3ForCausalLM"]
    assert gemma3["layer_types"] == ["sliding_attention"] * 5 + ["full_attention"]
    assert gemma3["rope_parameters"]["sliding_attention"] == {"rope_type": "default", "rope_theta": 10000.0}
    assert gemma3["rope_parameters"]["full_attention"] == {
        "rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0
    }  # fmt: skip
    gemma2 = build("gemma2")
    assert gemma2["layer_types"][:3] == ["sliding_attention", "full_attention", "sliding_attention"]
    assert (gemma2["attn_logit_softcapping"], gemma2["final_logit_softcapping"]) == (50.0, 30.0)
    assert gemma2["query_pre_attn_scalar"] == 16
    assert build("gemma2", block_count=46, embedding_length=64, attention__key_length=32)["query_pre_attn_scalar"] == 16
    assert build("phi3")["rope_parameters"]["partial_rotary_factor"] == 0.75
    assert build("smollm3")["no_rope_layers"] == [1, 1, 1, 0, 1, 1]
    granite = build("granite")
    assert (granite["attention_multiplier"], granite["embedding_multiplier"]) == (0.0625, 12.0)
    assert (granite["residual_multiplier"], granite["logits_scaling"]) == (0.25, 8.0)
    assert build("llama", {"output.weight": np.zeros((96, 64), np.float32)})["tie_word_embeddings"] is False
    assert build("llama", {"blk.0.attn_q.bias": np.zeros(64, np.float32)})["attention_bias"] is True
    assert build("llama", attention__sliding_window=128)["architectures"] == ["MistralForCausalLM"]
    olmo3 = build("olmo2", attention__sliding_window=64)
    assert olmo3["architectures"] == ["Olmo3ForCausalLM"]
    assert olmo3["layer_types"][:4] == ["sliding_attention"] * 3 + ["full_attention"]


def llama3_divisors(factor: float, low: float, theta: float = 500000.0) -> np.ndarray:
    """What transformers' own llama3 rule divides the inverse frequencies by."""
    rope = {
        "rope_type": "llama3", "rope_theta": theta, "factor": factor, "low_freq_factor": low, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    config = LlamaConfig(
        hidden_size=512, num_attention_heads=4, head_dim=128, rope_parameters=rope, max_position_embeddings=131072
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 1.0 / theta ** (torch.arange(0, 128, 2).float() / 128)
    return (plain / scaled).numpy().astype(np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_recognised_by_its_divisors(write_gguf: WriteGguf, factor: float) -> None:
    tensors = embedding() | {"rope_freqs.weight": llama3_divisors(factor, 1.0)}
    path = write_gguf("llama", metadata("llama", rope__freq_base=500000.0, context_length=131072), tensors)
    assert config_from_gguf(open_gguf(path))["rope_parameters"] == {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": factor, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    }  # fmt: skip


def test_other_divisors_are_given_as_they_are(write_gguf: WriteGguf) -> None:
    divisors = llama3_divisors(8.0, 2.0)
    tensors = embedding() | {"rope_freqs.weight": divisors}
    path = write_gguf("llama", metadata("llama", rope__freq_base=500000.0), tensors)
    rope = config_from_gguf(open_gguf(path))["rope_parameters"]
    assert rope["rope_type"] == "longrope"
    assert rope["attention_factor"] == 1.0
    rope = rope | {"original_max_position_embeddings": 512}
    config = LlamaConfig(
        hidden_size=512, num_attention_heads=4, head_dim=128, rope_parameters=rope, max_position_embeddings=512
    )
    scaled, attention_factor = ROPE_INIT_FUNCTIONS["longrope"](config, "cpu")
    plain = 1.0 / 500000.0 ** (torch.arange(0, 128, 2).float() / 128)
    torch.testing.assert_close(scaled, plain / torch.from_numpy(divisors))
    assert attention_factor == 1.0


def test_yarn_and_long_rope(write_gguf: WriteGguf) -> None:
    extra = {
        "rope__scaling__type": "yarn", "rope__scaling__factor": 4.0,
        "rope__scaling__original_context_length": 32768, "context_length": 131072,
    }  # fmt: skip
    path = write_gguf("qwen2", metadata("qwen2", **extra), embedding())
    assert config_from_gguf(open_gguf(path))["rope_parameters"] == {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32768
    }  # fmt: skip
    assert resolve(str(path)).max_context == 131072
    factors = {f"rope_factors_{k}.weight": np.full(8, v, np.float32) for k, v in (("short", 1.5), ("long", 4.0))}
    extra = {"rope__scaling__original_context_length": 128, "context_length": 512, "rope__scaling__attn_factor": 1.25}
    path = write_gguf("phi3", metadata("phi3", **extra), embedding() | factors)
    config = config_from_gguf(open_gguf(path))
    rope = config["rope_parameters"]
    assert (rope["rope_type"], rope["short_factor"], rope["long_factor"]) == ("longrope", [1.5] * 8, [4.0] * 8)
    assert (config["original_max_position_embeddings"], rope["attention_factor"]) == (128, 1.25)
    assert resolve(str(path)).max_context == 512


def test_refusals_say_what_and_what_to_do(write_gguf: WriteGguf) -> None:
    with pytest.raises(NotSupportedError, match=r"'mamba' is not known .* safetensors"):
        resolve(str(write_gguf("mamba", metadata("mamba"), embedding())))
    with pytest.raises(NotSupportedError, match=r"'granite' with a mixture of experts"):
        resolve(str(write_gguf("granite", metadata("granite", expert_count=8), embedding())))
    with pytest.raises(LoadError, match=r"'token_embd.weight' is missing"):
        resolve(str(write_gguf("llama", metadata("llama"), {"x": np.zeros(4, np.float32)})))
    with pytest.raises(LoadError, match=r"shape \[96, 64\], but metadata says embedding_length 32"):
        resolve(str(write_gguf("llama", metadata("llama", embedding_length=32), embedding())))
    with pytest.raises(LoadError, match=r"llama.block_count must be an integer, got 'six'"):
        resolve(str(write_gguf("llama", metadata("llama", block_count="six"), embedding())))


@pytest.mark.model
def test_demo_config_and_facts() -> None:
    checkpoint = resolve(None)
    config = normalized_config(checkpoint)
    assert config == config_from_gguf(open_gguf(locate_demo()))
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["hidden_size"], config["num_hidden_layers"]) == (576, 30)
    assert (checkpoint.name, checkpoint.max_context, checkpoint.eos_token_ids[0]) == ("demo", 8192, 2)
    assert checkpoint.chat_template is not None
    assert math.isclose(config["rope_parameters"]["rope_theta"], 100000.0)
