"""Contract `models`: model architectures.

Owns: the Protocol of an architecture and how its weights are placed. Knows no family. Version 1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from turret.messages import KVGroup

__all__ = ["AttentionNeed", "Model", "ModelArchitecture", "ModelContext", "Placement", "WeightRule"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one stored tensor goes: parameter `target` of the model, as shard number `shard` of a fused layer (None =
    whole). `transform` (if any) maps the stored tensor to what the parameter expects; `skip` drops it."""

    target: str = ""
    shard: int | None = None
    transform: Callable[[Tensor], Tensor] | None = None
    skip: bool = False


WeightRule = Callable[[str], Placement | None]
"""From a checkpoint's tensor name to its placement; None means the name is unknown, which is an error at load."""


@dataclass(frozen=True, slots=True)
class AttentionNeed:
    """What one kind of attention layer of a model asks of a backend; core adds device, dtypes and block size to make an
    `AttentionQuery` of it."""

    num_heads: int
    num_kv_heads: int
    head_size: int
    value_head_size: int
    variant: str = "mha"
    sliding_window: bool = False
    softcap: bool = False
    sinks: bool = False
    alibi: bool = False
    bidirectional: bool = False


@dataclass(frozen=True, slots=True)
class ModelContext:
    """What a model is built with: dtype (torch name), device string, and nn's factory objects.

    `layers` is a `turret.nn` LayerFactory: it makes linears, attention and norms that know their quantization, backend
    and ops. `max_position` bounds positions that will be asked for.
    """

    dtype: str
    device: str
    max_position: int
    layers: Any


@runtime_checkable
class Model(Protocol):
    """A built model. `ctx` is a `turret.nn` ForwardContext, always an explicit argument."""

    def forward(self, ids: Tensor, positions: Tensor, ctx: Any) -> Tensor:
        """Hidden states [T, H] after the final norm, from ids [T] and positions [T]."""

    def logits(self, hidden: Tensor, ctx: Any) -> Tensor:
        """Float32 logits [n, V] of hidden rows [n, H]."""

    def kv_groups(self) -> list[KVGroup]:
        """How its attention layers share the cache."""


@runtime_checkable
class ModelArchitecture(Protocol):
    """One or more architectures of config.json. The entry point's name is the architecture."""

    api: str

    def attention_needs(self, config: Mapping[str, Any]) -> Sequence[AttentionNeed]:
        """The distinct kinds of attention layers, so that a backend can be chosen before anything is built."""

    def build(self, config: Mapping[str, Any], ctx: ModelContext) -> Model:
        """The model with empty parameters, from a normalised Hugging Face config."""

    def weights(self, config: Mapping[str, Any]) -> WeightRule:
        """Placement of each stored tensor."""
