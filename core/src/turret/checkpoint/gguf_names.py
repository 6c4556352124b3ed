"""Names of a GGUF file's tensors in Hugging Face terms, and what its converter did to them that must be undone.

Owns: the map of names, the row order of rotary projections and the constants baked into norms. Knows nothing of the
container, of block formats nor of where a weight goes in a model.

llama.cpp stores the query and key rows of some architectures interleaved (rows 2i and 2i+1 of a head turn together)
where Hugging Face keeps them half-split (rows i and i + D/2 do). Rows move whole, so packed rows can be reordered
without decoding them. Gemma's norms multiply by 1 + w; the file stores 1 + w.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.errors import LoadError

__all__ = ["GGUF_TENSOR_ARCHITECTURES", "GgufTensor", "half_split_rows", "hf_tensor"]


@dataclass(frozen=True, slots=True, eq=False)
class GgufTensor:
    """One tensor of the file as a Hugging Face checkpoint would hold it.

    Where `hf_name` says `{e}`, the file stacks the matrices of all experts: the first dimension is the expert. Where
    `lifted`, the file has a vector of what is a matrix of one row. Row r of tensor `hf_name` is row `rows[r]` of the
    stored one (None: the same order), for a bias as for a matrix; `add` is to be added to each stored value (only ever
    non-zero for norms, which are stored as floats).
    """

    hf_name: str
    rows: NDArray[np.int64] | None = None
    add: float = 0.0
    lifted: bool = False

    @property
    def stacked(self) -> bool:
        return "{e}" in self.hf_name


@dataclass(frozen=True, slots=True)
class _Architecture:
    """`layer` maps a name within a block to a name within `model.layers.N`."""

    layer: Mapping[str, str]
    interleaved: bool = False
    norm_add: float = 0.0


_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

_SKIPPED = re.compile(r"(rope_freqs|rope_factors_(long|short)|blk\.\d+\.attn_rot_embd)(\.weight)?")
"""Tables of rotary frequencies: the config carries them, see `gguf_config`."""

_ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_FUSED_ATTENTION = {"attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj"}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_FUSED_MLP = {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
_EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{e}.gate_proj",
    "ffn_up_exps": "mlp.experts.{e}.up_proj",
    "ffn_down_exps": "mlp.experts.{e}.down_proj",
}
_SHARED_EXPERT = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_MIXTRAL = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{e}.w1",
    "ffn_up_exps": "block_sparse_moe.experts.{e}.w3",
    "ffn_down_exps": "block_sparse_moe.experts.{e}.w2",
}
_PRE_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
_POST_NORMS = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
_SANDWICH_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "pre_feedforward_layernorm"} | _POST_NORMS

_LLAMA = _ATTENTION | _MLP | _PRE_NORMS

_ARCHITECTURES: Mapping[str, _Architecture] = MappingProxyType({
    "llama": _Architecture(_LLAMA | _MIXTRAL, interleaved=True),
    "granite": _Architecture(_LLAMA, interleaved=True),
    "smollm3": _Architecture(_LLAMA, interleaved=True),
    "qwen2": _Architecture(_LLAMA),
    "qwen3": _Architecture(_LLAMA | _HEAD_NORMS),
    "qwen2moe": _Architecture(_LLAMA | _EXPERTS | _SHARED_EXPERT),
    "qwen3moe": _Architecture(_LLAMA | _HEAD_NORMS | _EXPERTS),
    "olmoe": _Architecture(_LLAMA | _HEAD_NORMS | _EXPERTS),
    "phi3": _Architecture(_FUSED_ATTENTION | _FUSED_MLP | _PRE_NORMS),
    "olmo2": _Architecture(_ATTENTION | _MLP | _HEAD_NORMS | _POST_NORMS),
    "gemma2": _Architecture(_ATTENTION | _MLP | _SANDWICH_NORMS, norm_add=-1.0),
    "gemma3": _Architecture(_ATTENTION | _MLP | _SANDWICH_NORMS | _HEAD_NORMS, norm_add=-1.0),
})

GGUF_TENSOR_ARCHITECTURES = tuple(_ARCHITECTURES)
"""Architectures (`general.architecture`) whose tensor names are known."""

_NAME = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<part>[a-z0-9_]+)\.(?P<param>weight|bias)")


def hf_tensor(arch: str, gguf_name: str, config: Mapping[str, Any]) -> GgufTensor | None:
    """The Hugging Face tensor that `gguf_name` of a file of architecture `arch` holds; None if it is no weight.

    `config` is the model's Hugging Face config, asked for head counts. Raises LoadError for an architecture or a name
    that is not known.
    """
    known = _ARCHITECTURES.get(arch)
    if known is None:
        raise LoadError(f"GGUF architecture {arch!r} is not supported; supported are {', '.join(_ARCHITECTURES)}")
    if _SKIPPED.fullmatch(gguf_name):
        return None
    match = _NAME.fullmatch(gguf_name)
    part, layer = (match["part"], match["layer"]) if match else ("", None)
    inner = (_OUTER if layer is None else known.layer).get(part)
    if match is None or inner is None:
        raise LoadError(f"tensor {gguf_name!r} is not known in GGUF architecture {arch!r}")
    prefix = "" if layer is None else f"model.layers.{layer}."
    return GgufTensor(
        hf_name=f"{prefix}{inner}.{match['param']}",
        rows=_row_order(part, config) if known.interleaved else None,
        add=known.norm_add if part.endswith("norm") else 0.0,
        lifted=part == "ffn_gate_inp_shexp",
    )


def half_split_rows(heads: int, head_dim: int) -> NDArray[np.int64]:
    """Which interleaved row stands at each half-split place, for `heads` heads of `head_dim` rows."""
    stored = np.arange(heads * head_dim, dtype=np.int64).reshape(heads, head_dim // 2, 2)
    return np.ascontiguousarray(stored.transpose(0, 2, 1)).reshape(-1)


def _row_order(part: str, config: Mapping[str, Any]) -> NDArray[np.int64] | None:
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or int(config["hidden_size"]) // heads)
    if part == "attn_q":
        return half_split_rows(heads, head_dim)
    if part == "attn_k":
        return half_split_rows(int(config.get("num_key_value_heads") or heads), head_dim)
    return None
