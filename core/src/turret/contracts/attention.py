"""Contract `attention`: attention over a paged KV cache.

Owns: the Protocol, its query and the values of a call. Knows no kernel. Version 1.0.

Shapes: T tokens in the step, B requests, D head size, Dv value head size, Hq/Hkv heads, M blocks per table row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from turret.contracts.verdict import Verdict

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["AttentionBackend", "AttentionBatch", "AttentionCall", "AttentionQuery", "KVLayout", "KVSpec"]


@dataclass(frozen=True, slots=True)
class AttentionQuery:
    """What the layers of a model need; one query per distinct kind of layer. `dtype` names are torch's without
    `torch.`.
    """

    device: str
    dtype: str
    kv_dtype: str
    head_size: int
    value_head_size: int
    num_heads: int
    num_kv_heads: int
    block_size: int
    variant: str = "mha"
    sliding_window: bool = False
    softcap: bool = False
    sinks: bool = False
    alibi: bool = False
    bidirectional: bool = False


@dataclass(frozen=True, slots=True)
class KVSpec:
    """One layer's pages. `dtype` is the storage type's torch name. `variant` `mla`: values are the first
    `value_head_size` numbers of the keys, so that a page need hold keys only."""

    num_kv_heads: int
    head_size: int
    value_head_size: int
    block_size: int
    dtype: str
    variant: str = "mha"


@dataclass(frozen=True, slots=True)
class KVLayout:
    """How a backend wants one layer's pages: `page_shape` without the block dimension, which is always first and
    contiguous, so that a layer's cache is one tensor [num_blocks, *page_shape] of `dtype`; `page_bytes` is one page."""

    page_shape: tuple[int, ...]
    dtype: str
    page_bytes: int


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """One step's geometry for one KV group.

    `query_start` int32 [B+1]: tokens of request b are rows query_start[b]:query_start[b+1] of q.
    `seq_lens` int32 [B]: tokens of request b after this step (cached + new). `block_table` int32 [B, M]: page ids; 0 is
    the null page, only ever outside the window. `slot_mapping` int64 [T]: page * block_size + offset where each new
    token's K and V go. The lists are the same numbers on the host, for backends that loop. `window` is the group's
    sliding window in tokens or None. `num_decodes` requests come first and have one token each.
    """

    query_start: Tensor
    seq_lens: Tensor
    block_table: Tensor
    slot_mapping: Tensor
    query_start_list: list[int]
    seq_lens_list: list[int]
    max_query_len: int
    max_seq_len: int
    num_decodes: int
    block_size: int
    window: int | None
    bidirectional: bool = False


@dataclass(slots=True)
class AttentionCall:
    """One layer's call.

    q [T, Hq, D], k [T, Hkv, D], v [T, Hkv, Dv], out [T, Hq, Dv], all row-contiguous in the last dimension; `kv` is the
    layer's cache [num_blocks, *page_shape]; `metadata` what `build` returned for the layer's group. The backend
    writes k
    and v to the cache, then attends. `sinks` float [Hq] joins each softmax's denominator; `alibi_slopes` float [Hq].

    `variant` `mla` is latent attention in its absorbed form (DeepSeek-V2, arXiv 2405.04434): Hkv is 1, k holds a
    token's latent and its rotary part, q has the keys' up-projection multiplied in, v is k[..., :Dv] and need not be
    read.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    kv: Tensor
    metadata: Any
    out: Tensor
    scale: float
    softcap: float = 0.0
    sinks: Tensor | None = None
    alibi_slopes: Tensor | None = None
    variant: str = "mha"


@runtime_checkable
class AttentionBackend(Protocol):
    """Attention kernels. One object per worker; it may keep scratch memory.

    A backend created for the recorded forward must write only into `out`, the cache and its own scratch.
    """

    api: str
    name: str

    def supports(self, query: AttentionQuery) -> Verdict:
        """Whether layers like this can run here, decided from static facts."""

    def kv_layout(self, spec: KVSpec) -> KVLayout:
        """Page layout for a layer."""

    def build(self, batch: AttentionBatch) -> Any:
        """Metadata of a step for one group, shared by its layers."""

    def run(self, call: AttentionCall) -> None:
        """Write k and v, attend, fill `out`."""
