"""`DecoderSpec`: a frozen description of a decoder-only transformer, from which one generic `Decoder` is built.

Owns: the vocabulary of the description, and nothing that computes. Needs no torch. Knows no family.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = [
    "AttentionSpec",
    "BlockSpec",
    "DecoderSpec",
    "MLPSpec",
    "MoESpec",
    "NormSpec",
    "Placing",
    "QKNorm",
    "RopeSpec",
    "WeightNames",
]


class Placing(StrEnum):
    """Where a block's norms stand. With r the residual stream, A attention, M the MLP, N a norm:

    PRE: r += A(N r); r += M(N r). POST: r += N A(r); r += N M(r). SANDWICH: r += N A(N r); r += N M(N r).
    PARALLEL: r += A(N r) + M(N r), one norm.
    """

    PRE = "pre"
    POST = "post"
    SANDWICH = "sandwich"
    PARALLEL = "parallel"


class QKNorm(StrEnum):
    """Norm of queries and keys: none, one gain [D] for every head, or over the whole projection [heads * D]."""

    NONE = "none"
    HEAD = "head"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class NormSpec:
    """`kind` is `rms` or `layer`; the gain is offset + weight; `weight` False means a gain of one (OLMo 1)."""

    kind: str = "rms"
    eps: float = 1e-6
    offset: float = 0.0
    bias: bool = False
    weight: bool = True


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary positions: the first `dim` columns of a head turn by position * inverse frequency.

    `kind` is `default`, `linear`, `dynamic`, `yarn`, `llama3` or `longrope`; the other fields are read by the kinds
    that need them. `original_max_position` is the length of training before scaling. `interleaved` pairs columns
    (2i, 2i + 1) instead of (i, i + dim/2).
    """

    dim: int
    base: float = 10000.0
    interleaved: bool = False
    kind: str = "default"
    factor: float = 1.0
    original_max_position: int = 0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 0.0
    mscale_all_dim: float = 0.0
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Grouped-query attention of one layer. `rope` None: no positions (NoPE); `window` w: q sees k if q - k < w."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    value_head_dim: int | None = None
    rope: RopeSpec | None = None
    window: int | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: QKNorm = QKNorm.NONE
    qk_norm_after_rope: bool = False
    softcap: float = 0.0
    sinks: bool = False
    alibi: bool = False


@dataclass(frozen=True, slots=True)
class MLPSpec:
    """down(act(gate(x)) * up(x)), or down(act(up(x))) when not `gated`. Activations: silu, gelu, gelu_tanh, relu2
    (gated: the first three)."""

    intermediate_size: int
    activation: str = "silu"
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True)
class MoESpec:
    """A mixture of gated experts: each token goes to the `top_k` of `num_experts` with the best scores (`softmax` or
    `sigmoid` of the router's logits, plus a stored bias that takes part in the choice only, if `correction_bias`).
    Weights are the scores, divided by their sum if `renormalise`, times `scale`. A shared expert of `shared_size` (0:
    none) sees every token; `shared_gate` multiplies its output by the sigmoid of a number per token."""

    num_experts: int
    top_k: int
    intermediate_size: int
    activation: str = "silu"
    scoring: str = "softmax"
    renormalise: bool = True
    scale: float = 1.0
    correction_bias: bool = False
    shared_size: int = 0
    shared_gate: bool = False

    @property
    def expert(self) -> MLPSpec:
        """One expert."""
        return MLPSpec(self.intermediate_size, self.activation)

    @property
    def shared(self) -> MLPSpec:
        """The shared expert."""
        return MLPSpec(self.shared_size, self.activation)


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """One layer."""

    attention: AttentionSpec
    mlp: MLPSpec | MoESpec
    placing: Placing = Placing.PRE


@dataclass(frozen=True, slots=True)
class WeightNames:
    """What a family's checkpoints call the layers; the defaults are Llama's. `{i}` is the layer's index.

    `qkv` and `gate_up`, where set, are fused on disk and stand for q, k, v and gate, up. `attn_norm` is before
    attention, `attn_post_norm` after it, and so for the MLP; a placing uses those it has. `ignored` are substrings of
    names that files carry and the model does not need. Of a mixture of experts, `experts` begins an expert's names
    (`{e}` is its number), `shared` those of the shared one.
    """

    embed: str = "model.embed_tokens"
    norm: str = "model.norm"
    head: str = "lm_head"
    layer: str = "model.layers.{i}."
    q: str = "self_attn.q_proj"
    k: str = "self_attn.k_proj"
    v: str = "self_attn.v_proj"
    qkv: str | None = None
    o: str = "self_attn.o_proj"
    q_norm: str = "self_attn.q_norm"
    k_norm: str = "self_attn.k_norm"
    sinks: str = "self_attn.sinks"
    gate: str = "mlp.gate_proj"
    up: str = "mlp.up_proj"
    gate_up: str | None = None
    down: str = "mlp.down_proj"
    router: str = "mlp.gate"
    router_bias: str = "mlp.gate.e_score_correction_bias"
    experts: str = "mlp.experts.{e}."
    expert_gate: str = "gate_proj"
    expert_up: str = "up_proj"
    expert_down: str = "down_proj"
    shared: str = "mlp.shared_expert."
    shared_gate: str = "mlp.shared_expert_gate"
    attn_norm: str = "input_layernorm"
    attn_post_norm: str = "post_attention_layernorm"
    mlp_norm: str = "post_attention_layernorm"
    mlp_post_norm: str = "post_feedforward_layernorm"
    ignored: tuple[str, ...] = ("rotary_emb.inv_freq",)


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A whole decoder. Hidden states start as embedding * `embedding_scale`; each branch is multiplied by
    `residual_multiplier` before it joins the residual stream (PRE and PARALLEL only); logits are multiplied by
    `logits_scale`, then capped. `norm` describes every norm of the stream, `qk_norm` those of queries and keys."""

    vocab_size: int
    hidden_size: int
    blocks: tuple[BlockSpec, ...]
    norm: NormSpec = field(default_factory=NormSpec)
    qk_norm: NormSpec = field(default_factory=NormSpec)
    tied: bool = False
    embedding_scale: float = 1.0
    residual_multiplier: float = 1.0
    logits_scale: float = 1.0
    logits_softcap: float = 0.0
    head_bias: bool = False
    names: WeightNames = field(default_factory=WeightNames)
