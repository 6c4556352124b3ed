"""Rebuilds a Hugging Face shaped config from the metadata and tensor names of a GGUF file.

Owns: what each GGUF architecture is called in Hugging Face terms and which of its facts a file leaves unsaid. Knows
nothing of weights. The result is already normalised (what transformers' config classes would add is there), so that a
GGUF model starts without importing transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from turret.checkpoint.gguf_header import GgufArray, GgufFile
from turret.checkpoint.gguf_rope import rope_parameters, tidy
from turret.errors import LoadError, NotSupportedError

__all__ = ["GGUF_ARCHITECTURES", "config_from_gguf"]

_WITH_EXPERTS = ("llama", "qwen2moe", "qwen3moe", "olmoe")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Metadata of one file under its architecture's prefix, with checked types."""

    file: GgufFile
    arch: str

    def maybe(self, key: str) -> Any:
        value = self.file.metadata.get(f"{self.arch}.{key}")
        return tidy(value) if isinstance(value, float) else value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.maybe(key)
        if isinstance(value, GgufArray):
            value = self._single(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int):
            raise LoadError(f"{self.file.path}: metadata {self.arch}.{key} must be an integer, got {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.maybe(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise LoadError(f"{self.file.path}: metadata {self.arch}.{key} must be a number, got {value!r}")
        return float(value)

    def _single(self, key: str) -> object:
        values = set(self.file.numbers(f"{self.arch}.{key}") or ())
        if len(values) > 1:
            raise NotSupportedError(
                f"{self.file.path}: {self.arch}.{key} differs from layer to layer, which turret cannot run from GGUF; "
                "use the model's safetensors files"
            )
        return values.pop() if values else None

    def has(self, tensor: str) -> bool:
        return tensor in self.file.tensors

    @property
    def layers(self) -> int:
        return self.integer("block_count")

    @property
    def head_dim(self) -> int:
        heads = self.integer("attention.head_count")
        if heads < 1:
            raise LoadError(f"{self.file.path}: metadata {self.arch}.attention.head_count is {heads}, not positive")
        return self.integer("attention.key_length", self.integer("embedding_length") // heads)


def config_from_gguf(file: GgufFile) -> dict[str, Any]:
    """The config of the model in `file`.

    Raises NotSupportedError for an architecture with no entry here, LoadError when metadata is missing or malformed.
    """
    arch = file.metadata.get("general.architecture")
    if not isinstance(arch, str):
        raise LoadError(f"{file.path}: metadata general.architecture is missing; this is not a model")
    if arch not in GGUF_ARCHITECTURES:
        raise NotSupportedError(
            f"{file.path}: GGUF architecture {arch!r} is not known to turret "
            f"(known: {', '.join(sorted(GGUF_ARCHITECTURES))}); use the model's safetensors files"
        )
    reader = _Reader(file, arch)
    _refuse_oddities(reader)
    config = _common(reader)
    config.update(GGUF_ARCHITECTURES[arch](reader, config))
    return config


def _refuse_oddities(r: _Reader) -> None:
    if r.maybe("expert_count") and r.arch not in _WITH_EXPERTS:
        raise NotSupportedError(
            f"{r.file.path}: GGUF files of {r.arch!r} with a mixture of experts are not supported (of "
            f"{', '.join(_WITH_EXPERTS)} they are); use the model's safetensors files"
        )
    embedding = r.file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise LoadError(f"{r.file.path}: tensor 'token_embd.weight' is missing or not a matrix; this is not a model")
    if embedding.shape[1] != r.integer("embedding_length"):
        raise LoadError(
            f"{r.file.path}: tensor 'token_embd.weight' has shape {list(embedding.shape)}, but metadata says "
            f"embedding_length {r.integer('embedding_length')}"
        )


def _common(r: _Reader) -> dict[str, Any]:
    heads = r.integer("attention.head_count")
    ids = {
        name: r.file.metadata.get(f"tokenizer.ggml.{key}_token_id")
        for name, key in (("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding"))
    }
    config: dict[str, Any] = {
        "vocab_size": r.file.tensors["token_embd.weight"].shape[0],
        "hidden_size": r.integer("embedding_length"),
        "intermediate_size": r.integer("feed_forward_length"),
        "num_hidden_layers": r.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": r.integer("attention.head_count_kv", heads),
        "head_dim": r.head_dim,
        "max_position_embeddings": r.integer("context_length"),
        "rms_norm_eps": r.number("attention.layer_norm_rms_epsilon"),
        "rope_parameters": rope_parameters(r.file, r.arch, 10000.0),
        "tie_word_embeddings": not r.has("output.weight"),
        "attention_bias": r.has("blk.0.attn_q.bias"),
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "use_cache": True,
    }
    config.update(ids)
    return config


def _llama(r: _Reader, _: dict[str, Any]) -> dict[str, Any]:
    extra: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    window = r.maybe("attention.sliding_window")
    if r.maybe("expert_count"):
        return {
            "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "sliding_window": window or None,
            "num_local_experts": r.integer("expert_count"), "num_experts_per_tok": r.integer("expert_used_count"),
            "router_jitter_noise": 0.0, **_TRAINING,
        }  # fmt: skip
    if window:
        return {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": window}
    return extra | {"mlp_bias": r.has("blk.0.ffn_down.bias")}


def _qwen2(r: _Reader, _: dict[str, Any]) -> dict[str, Any]:
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **_no_window(r)}


def _qwen3(r: _Reader, _: dict[str, Any]) -> dict[str, Any]:
    return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **_no_window(r)}


def _qwen2moe(r: _Reader, _: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", **_no_window(r), **_experts(r),
        "sliding_window": 0,
        "num_experts": r.integer("expert_count"), "qkv_bias": r.has("blk.0.attn_q.bias"), "norm_topk_prob": False,
        "shared_expert_intermediate_size": r.integer(
            "expert_shared_feed_forward_length", _rows(r, "blk.0.ffn_gate_shexp.weight")),
    }  # fmt: skip


def _qwen3moe(r: _Reader, _: dict[str, Any]) -> dict[str, Any]:
    # Whether weights are divided by their sum is not stored: they are in every model of the family.
    return {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "use_sliding_window": False,
        "sliding_window": None, "num_local_experts": r.integer("expert_count"), "norm_topk_prob": True, **_experts(r),
    }  # fmt: skip


def _olmoe(r: _Reader, _: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "clip_qkv": None, "norm_topk_prob": False,
        "num_experts": r.integer("expert_count"), "num_experts_per_tok": r.integer("expert_used_count"),
        "output_router_logits": False, "router_aux_loss_coef": 0.01,
    }  # fmt: skip


_TRAINING = {"output_router_logits": False, "router_aux_loss_coef": 0.001}


def _experts(r: _Reader) -> dict[str, Any]:
    """Qwen's: experts in every layer, of a width of their own."""
    width = r.integer("expert_feed_forward_length", _rows(r, "blk.0.ffn_gate_exps.weight"))
    return {
        "moe_intermediate_size": width, "num_experts_per_tok": r.integer("expert_used_count"),
        "decoder_sparse_step": 1, "mlp_only_layers": [], **_TRAINING,
    }  # fmt: skip


def _rows(r: _Reader, tensor: str) -> int | None:
    """Rows of a tensor's matrices; None if it is not there."""
    found = r.file.tensors.get(tensor)
    return None if found is None or len(found.shape) < 2 else found.shape[-2]


def _no_window(r: _Reader) -> dict[str, Any]:
    return {
        "use_sliding_window": False, "sliding_window": None, "max_window_layers": r.layers,
        "layer_types": ["full_attention"] * r.layers,
    }  # fmt: skip


def _gemma2(r: _Reader, config: dict[str, Any]) -> dict[str, Any]:
    # The 27B model alone scales queries by hidden/heads instead of the head size; no metadata says so, its depth does.
    by_heads = r.layers == 46
    return {
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2",
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": _query_scalar(config, by_heads),
        "sliding_window": r.integer("attention.sliding_window", 4096),
        "layer_types": _layer_types(r.layers, 2),
        "attn_logit_softcapping": r.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": r.number("final_logit_softcapping", 30.0),
        "use_bidirectional_attention": None,
    }  # fmt: skip


def _gemma3(r: _Reader, config: dict[str, Any]) -> dict[str, Any]:
    by_heads = r.layers == 62  # the 27B model, as in Gemma 2
    full = rope_parameters(r.file, r.arch, 1_000_000.0)
    local = {"rope_type": "default", "rope_theta": r.number("rope.freq_base_swa", 10000.0)}
    return {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": _query_scalar(config, by_heads),
        "sliding_window": r.integer("attention.sliding_window"),
        "layer_types": _layer_types(r.layers, 6),
        "rope_parameters": {"sliding_attention": local, "full_attention": full},
        "attn_logit_softcapping": r.maybe("attn_logit_softcapping"),
        "final_logit_softcapping": r.maybe("final_logit_softcapping"),
        "use_bidirectional_attention": False,
    }  # fmt: skip


def _query_scalar(config: dict[str, Any], by_heads: bool) -> int:
    return int(config["hidden_size"] // config["num_attention_heads"] if by_heads else config["head_dim"])


def _layer_types(layers: int, period: int) -> list[str]:
    """Sliding windows, with full attention in the last layer of each period."""
    return ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(layers)]


def _phi3(r: _Reader, config: dict[str, Any]) -> dict[str, Any]:
    rope = dict(config["rope_parameters"])
    rotated = r.integer("rope.dimension_count", config["head_dim"])
    rope["partial_rotary_factor"] = rotated / config["head_dim"]
    original = r.integer("rope.scaling.original_context_length", config["max_position_embeddings"])
    return {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "rope_parameters": rope,
        "original_max_position_embeddings": original, "sliding_window": r.maybe("attention.sliding_window") or None,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    }  # fmt: skip


def _smollm3(r: _Reader, _: dict[str, Any]) -> dict[str, Any]:
    interval = 4  # fixed in the family: every fourth layer has no rotary embedding
    return {
        "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "mlp_bias": r.has("blk.0.ffn_down.bias"),
        "no_rope_layer_interval": interval,
        "no_rope_layers": [int((i + 1) % interval != 0) for i in range(r.layers)],
        "use_sliding_window": False, "sliding_window": None, "layer_types": ["full_attention"] * r.layers,
    }  # fmt: skip


def _granite(r: _Reader, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["GraniteForCausalLM"], "model_type": "granite", "mlp_bias": r.has("blk.0.ffn_down.bias"),
        "attention_multiplier": r.number("attention.scale", config["head_dim"] ** -0.5),
        "embedding_multiplier": r.number("embedding_scale", 1.0),
        "residual_multiplier": r.number("residual_scale", 1.0),
        "logits_scaling": r.number("logit_scale", 1.0),
    }  # fmt: skip


def _olmo2(r: _Reader, config: dict[str, Any]) -> dict[str, Any]:
    window = r.maybe("attention.sliding_window")
    if not window:
        return {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2"}
    # OLMo 3 is stored under the same name; its windowed layers use unscaled rotary frequencies.
    rope = config["rope_parameters"]
    local = {"rope_type": "default", "rope_theta": rope["rope_theta"]}
    return {
        "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "sliding_window": window,
        "layer_types": _layer_types(r.layers, 4),
        "rope_parameters": {"sliding_attention": local, "full_attention": rope},
    }  # fmt: skip


GGUF_ARCHITECTURES: MappingProxyType[str, Callable[[_Reader, dict[str, Any]], dict[str, Any]]] = MappingProxyType({
    "llama": _llama, "qwen2": _qwen2, "qwen3": _qwen3, "gemma2": _gemma2, "gemma3": _gemma3, "phi3": _phi3,
    "smollm3": _smollm3, "granite": _granite, "olmo2": _olmo2, "qwen2moe": _qwen2moe, "qwen3moe": _qwen3moe,
    "olmoe": _olmoe,
})  # fmt: skip
"""GGUF architectures that can be rebuilt, by the file's own name."""
