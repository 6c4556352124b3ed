"""Tiny checkpoints with random weights, as directories of config.json and safetensors."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["CONFIG", "llama_tensors", "quantized", "write_checkpoint"]

HIDDEN, INNER, LAYERS, VOCAB = 64, 96, 2, 128
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "eos_token_id": 0,
    "dtype": "float32",
}


def llama_tensors() -> dict[str, Tensor]:
    """Every tensor of the config above, under the names that Llama checkpoints use."""
    generator = torch.Generator().manual_seed(11)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) / columns**0.5

    tensors = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN), "model.norm.weight": torch.ones(HIDDEN)}
    tensors["lm_head.weight"] = matrix(VOCAB, HIDDEN)
    shapes = {"self_attn.q_proj": (64, HIDDEN), "self_attn.k_proj": (32, HIDDEN), "self_attn.v_proj": (32, HIDDEN)}
    shapes |= {"self_attn.o_proj": (HIDDEN, 64), "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN)}
    shapes["mlp.down_proj"] = (HIDDEN, INNER)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        tensors |= {f"{prefix}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        tensors[f"{prefix}.input_layernorm.weight"] = torch.ones(HIDDEN)
        tensors[f"{prefix}.post_attention_layernorm.weight"] = torch.ones(HIDDEN)
    return tensors


def quantized(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(int8 codes and scales a row for each projection, the same weights written out)."""
    stored, plain = {}, {}
    for name, tensor in tensors.items():
        if "_proj." not in name:
            stored[name] = plain[name] = tensor
            continue
        scales = tensor.abs().amax(dim=1) / 127
        codes = (tensor / scales[:, None]).round().to(torch.int8)
        layer = name.removesuffix(".weight")
        stored[f"{layer}.qweight"], stored[f"{layer}.scales"] = codes, scales
        plain[name] = codes.float() * scales[:, None]
    return stored, plain


def write_checkpoint(root: Path, tensors: dict[str, Tensor], **changes: object) -> Path:
    """A model's directory; `changes` go into its config."""
    root.mkdir(parents=True)
    (root / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, root / "model.safetensors")
    return root
