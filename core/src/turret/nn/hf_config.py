"""Reading a Hugging Face config into pieces of a `DecoderSpec`.

Owns: `HFConfig`, which knows the keys that families share, normalised (`rope_parameters`, `layer_types`) and raw
(`rope_theta`, `rope_scaling`). Knows no family: what a family does otherwise, it says in its own page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turret.errors import LoadError, NotSupportedError
from turret.nn.spec import AttentionSpec, BlockSpec, DecoderSpec, MLPSpec, MoESpec, NormSpec, Placing, RopeSpec

__all__ = ["FULL", "SLIDING", "HFConfig"]

FULL = "full_attention"
SLIDING = "sliding_attention"

ACTIVATION_NAMES = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu2": "relu2",
}

ROPE_NUMBERS = (
    "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", "low_freq_factor", "high_freq_factor",
)  # fmt: skip
"""Keys that config and RopeSpec call alike."""

ROPE_KINDS = {"su": "longrope", "mrope": "default"}
"""Older names of rope types."""


@dataclass(frozen=True, slots=True)
class HFConfig:
    """A config's values, and the defaults that most decoders share: grouped queries, RMSNorm before each branch, gated
    MLP, rotary halves. `attention`, `mlp`, `blocks` and `decoder` take the fields in which a family differs."""

    values: Mapping[str, Any]

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or the default when it is absent or null."""
        value = self.values.get(key)
        return default if value is None else value

    def need(self, *keys: str) -> Any:
        """The first of several keys that is there; raises LoadError naming them."""
        for key in keys:
            if self.values.get(key) is not None:
                return self.values[key]
        raise LoadError(f"config.json lacks {' or '.join(keys)}")

    def refuse(self, *keys: str) -> None:
        """Raise NotSupportedError if any of these switches is on."""
        for key in keys:
            if self.get(key, False):
                raise NotSupportedError(f"config.json asks for {key} = {self.get(key)!r}, which is not supported")

    @property
    def hidden_size(self) -> int:
        return int(self.need("hidden_size"))

    @property
    def num_layers(self) -> int:
        return int(self.need("num_hidden_layers"))

    @property
    def heads(self) -> int:
        return int(self.need("num_attention_heads"))

    @property
    def head_dim(self) -> int:
        return int(self.get("head_dim", self.hidden_size // self.heads))

    @property
    def kinds(self) -> list[str]:
        """Each layer's attention kind; all full where the config does not say."""
        return list(self.get("layer_types", [FULL] * self.num_layers))

    def kinds_every(self, period: int) -> list[str]:
        """The config's kinds, or where it has none: sliding, but every `period`-th layer full."""
        pattern = [SLIDING if (index + 1) % period else FULL for index in range(self.num_layers)]
        return list(self.get("layer_types", pattern))

    def norm(self, **changes: Any) -> NormSpec:
        return replace(NormSpec(eps=float(self.get("rms_norm_eps", 1e-6))), **changes)

    def attention(self, **changes: Any) -> AttentionSpec:
        """Attention of a full layer; `blocks` sets what depends on the layer."""
        return replace(
            AttentionSpec(
                num_heads=self.heads,
                num_kv_heads=int(self.get("num_key_value_heads", self.heads)),
                head_dim=self.head_dim,
                scale=self.head_dim**-0.5,
                rope=self.rope(),
                qkv_bias=bool(self.get("attention_bias", False)),
                out_bias=bool(self.get("attention_bias", False)),
            ),
            **changes,
        )

    def mlp(self, **changes: Any) -> MLPSpec:
        raw = str(self.get("hidden_act", self.get("hidden_activation", "silu")))
        if raw not in ACTIVATION_NAMES and "activation" not in changes:
            raise NotSupportedError(f"activation {raw!r} is not supported; known are {', '.join(ACTIVATION_NAMES)}")
        size = int(changes.pop("intermediate_size", None) or self.need("intermediate_size"))
        bias = bool(self.get("mlp_bias", False))
        return replace(MLPSpec(size, ACTIVATION_NAMES.get(raw, raw), bias=bias), **changes)

    def moe(self, **changes: Any) -> MoESpec:
        """A mixture of experts without shared ones."""
        experts = MoESpec(
            num_experts=int(self.need("num_experts", "num_local_experts")),
            top_k=int(self.need("num_experts_per_tok")),
            intermediate_size=int(self.need("moe_intermediate_size", "intermediate_size")),
            activation=self.mlp(intermediate_size=0).activation,
            renormalise=bool(self.get("norm_topk_prob", False)),
        )
        return replace(experts, **changes)

    def sparse(self, blocks: Sequence[BlockSpec], moe: MoESpec) -> tuple[BlockSpec, ...]:
        """The blocks, with experts in every `decoder_sparse_step`-th that is not among `mlp_only_layers`."""
        step, dense = int(self.get("decoder_sparse_step", 1)), self.get("mlp_only_layers", ())
        return tuple(
            block if index in dense or (index + 1) % step else replace(block, mlp=moe)
            for index, block in enumerate(blocks)
        )

    def blocks(
        self,
        attention: AttentionSpec,
        mlp: MLPSpec | MoESpec,
        placing: Placing = Placing.PRE,
        kinds: Sequence[str] | None = None,
    ) -> tuple[BlockSpec, ...]:
        """One block a layer: sliding layers get the config's window, and each kind of layer its own rope."""
        made = []
        for index, kind in enumerate(self.kinds if kinds is None else kinds):
            if kind not in (FULL, SLIDING):
                raise NotSupportedError(f"layer {index} is of the kind {kind!r}, which is not supported")
            window = int(self.need("sliding_window")) if kind == SLIDING else None
            rope = attention.rope
            if rope is not None and self._ropes_differ:
                rope = self.rope(kind, interleaved=rope.interleaved)
            made.append(BlockSpec(replace(attention, window=window, rope=rope), mlp, placing))
        return tuple(made)

    def decoder(self, blocks: tuple[BlockSpec, ...], **changes: Any) -> DecoderSpec:
        plain = DecoderSpec(
            vocab_size=int(self.need("vocab_size")),
            hidden_size=self.hidden_size,
            blocks=blocks,
            norm=self.norm(),
            qk_norm=self.norm(),
            tied=bool(self.get("tie_word_embeddings", False)),
        )
        return replace(plain, **changes)

    def rope(self, kind: str = FULL, **changes: Any) -> RopeSpec:
        """The rope of one kind of layer, from normalised or raw keys; raises LoadError for keys that are missing."""
        given = self._rope_values(kind)
        named = given.get("rope_type", given.get("type", "default"))
        partial = given.get("partial_rotary_factor", self.get("partial_rotary_factor", 1.0))
        longest = int(self.get("max_position_embeddings", 0))
        trained = given.get("original_max_position_embeddings", self.get("original_max_position_embeddings", longest))
        if named == "dynamic":
            trained = longest
        spec = RopeSpec(
            dim=int(self.head_dim * partial),
            base=float(given.get("rope_theta", self.get("rope_theta", 10000.0))),
            kind=ROPE_KINDS.get(named, named),
            factor=float(given.get("factor") or (longest / trained if trained else 1.0)),
            original_max_position=int(trained),
            attention_factor=given.get("attention_factor"),
            short_factor=tuple(given.get("short_factor", ())),
            long_factor=tuple(given.get("long_factor", ())),
            **{name: given[name] for name in ROPE_NUMBERS if given.get(name) is not None},
        )
        return replace(spec, **changes)

    @property
    def _ropes_differ(self) -> bool:
        parameters = self.get("rope_parameters", {})
        return any(isinstance(value, Mapping) for value in parameters.values()) or "rope_local_base_freq" in self.values

    def _rope_values(self, kind: str) -> Mapping[str, Any]:
        parameters = self.get("rope_parameters", {})
        if isinstance(parameters.get(kind), Mapping):
            return dict(parameters[kind])
        if kind == SLIDING and "rope_local_base_freq" in self.values:
            return {"rope_theta": self.values["rope_local_base_freq"]}
        return dict(parameters or self.get("rope_scaling", {}))
