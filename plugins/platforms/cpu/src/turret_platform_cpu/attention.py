"""The attention backend `cpu`: paged attention in the native library.

Owns: the page layout as the contract sees it, and the call. Knows no model; loads no torch (tensors come as they are).

Pages hold keys and values in the layout that the kernels' dot products take (native/kv.inl), in any of six types,
whatever the activations are. A row's result is bitwise the same whatever the batch, the chunking and the number of
threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from turret.contracts import AttentionBatch, AttentionCall, AttentionQuery, KVLayout, KVSpec, Verdict
from turret_platform_cpu.native import Native, load

if TYPE_CHECKING:
    from torch import Tensor, dtype

__all__ = ["CPUAttention"]

SUB_BLOCK = 16
LINE = 64
MAX_HEAD_SIZE = 1024
DTYPES = ("float32", "bfloat16")
VARIANTS = ("mha", "mla")


@dataclass(frozen=True, slots=True)
class _Stored:
    """How a cache type lies in pages: the library's number for it, bytes of a number, bytes of a token's scale."""

    number: int
    size: int
    scale: int = 0


STORED: Mapping[str, _Stored] = MappingProxyType({
    "float32": _Stored(0, 4),
    "bfloat16": _Stored(1, 2),
    "float16": _Stored(2, 2),
    "int8": _Stored(3, 1, scale=4),
    "float8_e4m3fn": _Stored(4, 1),
    "float8_e5m2": _Stored(5, 1),
})
"""Cache types by torch name. int8 has a scale for each token and head."""

ELEMENT_OF_SIZE = {4: 0, 2: 1}


@dataclass(frozen=True, slots=True)
class _StepGeometry:
    """What all layers of a group share in one step: addresses and sizes in the order of the C struct, and the tensors
    that own the addresses."""

    tables: tuple[int, int, int, int, int, int, int]
    block_size: int
    window: int
    bidirectional: bool
    owners: tuple[Tensor, ...]


class CPUAttention:
    """Attention on the CPU (contract `attention`, 1.0)."""

    api = "1.0"
    name = "cpu"

    def __init__(self, native: Native | None = None) -> None:
        self._native = native or load()
        self._run = self._native.op("tc_attention") if self._native else None
        self._numbers: dict[dtype, int] = {}

    def supports(self, query: AttentionQuery) -> Verdict:
        """All of the variants `mha` and `mla` with activations in float32 or bfloat16 and pages of whole sub-blocks."""
        reasons = []
        if self._native is None:
            reasons.append("the native library was not built; install a C++ compiler and reinstall turret-platform-cpu")
        if query.device.partition(":")[0] != "cpu":
            reasons.append(f"device {query.device} is not cpu")
        if query.variant not in VARIANTS:
            reasons.append(f"variant {query.variant!r} is none of {', '.join(VARIANTS)}")
        if query.variant == "mla" and query.value_head_size > query.head_size:
            reasons.append(f"values of {query.value_head_size} numbers are no part of keys of {query.head_size}")
        if query.dtype not in DTYPES:
            reasons.append(f"dtype {query.dtype} is none of {', '.join(DTYPES)}")
        if query.kv_dtype not in STORED:
            reasons.append(f"KV dtype {query.kv_dtype} is none of {', '.join(STORED)}")
        for what, size in (("head", query.head_size), ("value head", query.value_head_size)):
            if not 0 < size <= MAX_HEAD_SIZE:
                reasons.append(f"{what} size {size} is not between 1 and {MAX_HEAD_SIZE}")
        if query.block_size % SUB_BLOCK or query.block_size < 1:
            reasons.append(f"block size {query.block_size} is no multiple of {SUB_BLOCK}")
        if query.num_kv_heads < 1 or query.num_heads % query.num_kv_heads:
            reasons.append(f"{query.num_heads} heads do not divide among {query.num_kv_heads} KV heads")
        return Verdict.no(*reasons) if reasons else Verdict.yes()

    def kv_layout(self, spec: KVSpec) -> KVLayout:
        """One flat page: [keys of all heads, values of all heads], each in sub-blocks of 16 tokens (native/kv.inl); of
        `mla` only the keys, whose first numbers are the values."""
        stored = STORED[spec.dtype]
        key, value = -(-spec.head_size // 2) * 2, -(-spec.value_head_size // SUB_BLOCK) * SUB_BLOCK
        widths = (key,) if spec.variant == "mla" else (key, value)
        subs = [-(-SUB_BLOCK * (width * stored.size + stored.scale) // LINE) * LINE for width in widths]
        size = spec.num_kv_heads * spec.block_size // SUB_BLOCK * sum(subs)
        return KVLayout((size // stored.size,), spec.dtype, size)

    def build(self, batch: AttentionBatch) -> _StepGeometry:
        """The step's addresses; nothing is computed."""
        owners = (batch.query_start, batch.seq_lens, batch.block_table, batch.slot_mapping)
        starts, lengths, table, slots = (tensor.data_ptr() for tensor in owners)
        requests = len(batch.seq_lens_list)
        tables = (starts, lengths, table, slots, batch.block_table.stride(0), requests, batch.query_start_list[-1])
        return _StepGeometry(tables, batch.block_size, batch.window or 0, batch.bidirectional, owners)

    def run(self, call: AttentionCall) -> None:
        """Write k and v, attend, fill `out`."""
        if self._run is None:
            raise RuntimeError("the native library was not built")
        cache = self._numbers.get(call.kv.dtype)
        if cache is None:
            cache = self._numbers[call.kv.dtype] = STORED[str(call.kv.dtype).removeprefix("torch.")].number
        step: _StepGeometry = call.metadata
        q, k, v, out, kv, sinks, slopes = call.q, call.k, call.v, call.out, call.kv, call.sinks, call.alibi_slopes
        self._run(
            q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), kv.data_ptr(),
            q.stride(0), k.stride(0), v.stride(0), out.stride(0),
            *step.tables, q.shape[1], k.shape[1], q.shape[2], v.shape[2], step.block_size, step.window,
            call.scale, call.softcap, 0 if sinks is None else sinks.data_ptr(),
            0 if slopes is None else slopes.data_ptr(),
            ELEMENT_OF_SIZE[q.element_size()], cache, step.bidirectional, call.variant == "mla", 0, 0,
        )  # fmt: skip
