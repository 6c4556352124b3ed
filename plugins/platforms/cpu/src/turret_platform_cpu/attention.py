"""The attention backend `cpu`: paged attention in the native library.

Owns: the page layout as the contract sees it, and the call. Knows no model; loads no torch (tensors come as they are).

Pages hold keys and values in the layout that the kernels' dot products take (native/attention.inl). A row's result is
bitwise the same whatever the batch, the chunking and the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turret.contracts import AttentionBatch, AttentionCall, AttentionQuery, KVLayout, KVSpec, Verdict
from turret_platform_cpu.native import Native, load

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CPUAttention"]

SUB_BLOCK = 16
MAX_HEAD_SIZE = 512
SIZES = {"float32": 4, "bfloat16": 2}
ELEMENT_OF_SIZE = {4: 0, 2: 1}


@dataclass(frozen=True, slots=True)
class _StepGeometry:
    """What all layers of a group share in one step: addresses and sizes in the order of the C struct, and the tensors
    that own the addresses."""

    tables: tuple[int, int, int, int, int, int, int]
    block_size: int
    window: int
    owners: tuple[Tensor, ...]


class CPUAttention:
    """Attention on the CPU (contract `attention`, 1.0)."""

    api = "1.0"
    name = "cpu"

    def __init__(self, native: Native | None = None) -> None:
        self._native = native or load()
        self._run = self._native.op("tc_attention") if self._native else None

    def supports(self, query: AttentionQuery) -> Verdict:
        """Layers whose heads and pages are whole sub-blocks, in float32 or bfloat16, with a cache of the same type."""
        reasons = []
        if self._native is None:
            reasons.append("the native library was not built; install a C++ compiler and reinstall turret-platform-cpu")
        if query.device.partition(":")[0] != "cpu":
            reasons.append(f"device {query.device} is not cpu")
        if query.variant != "mha":
            reasons.append(f"variant {query.variant!r} is not mha")
        if query.dtype not in SIZES or query.kv_dtype != query.dtype:
            reasons.append(f"dtype {query.dtype} with a {query.kv_dtype} cache; served: {', '.join(SIZES)}, both alike")
        if query.head_size != query.value_head_size:
            reasons.append(f"value heads of {query.value_head_size} differ from heads of {query.head_size}")
        if query.head_size % SUB_BLOCK or not 0 < query.head_size <= MAX_HEAD_SIZE:
            reasons.append(f"head size {query.head_size} is no multiple of {SUB_BLOCK} up to {MAX_HEAD_SIZE}")
        if query.block_size % SUB_BLOCK or query.block_size < 1:
            reasons.append(f"block size {query.block_size} is no multiple of {SUB_BLOCK}")
        if query.num_kv_heads < 1 or query.num_heads % query.num_kv_heads:
            reasons.append(f"{query.num_heads} heads do not divide among {query.num_kv_heads} KV heads")
        reasons.extend(f"{name} is not served" for name in ("alibi", "bidirectional") if getattr(query, name))
        return Verdict.no(*reasons) if reasons else Verdict.yes()

    def kv_layout(self, spec: KVSpec) -> KVLayout:
        """[keys or values, Hkv, sub-blocks, 16 tokens times D]."""
        shape = (2, spec.num_kv_heads, spec.block_size // SUB_BLOCK, SUB_BLOCK * spec.head_size)
        size = 2 * spec.num_kv_heads * spec.block_size * spec.head_size * SIZES[spec.dtype]
        return KVLayout(shape, spec.dtype, size)

    def build(self, batch: AttentionBatch) -> _StepGeometry:
        """The step's addresses; nothing is computed."""
        owners = (batch.query_start, batch.seq_lens, batch.block_table, batch.slot_mapping)
        starts, lengths, table, slots = (tensor.data_ptr() for tensor in owners)
        requests = len(batch.seq_lens_list)
        tables = (starts, lengths, table, slots, batch.block_table.stride(0), requests, batch.query_start_list[-1])
        return _StepGeometry(tables, batch.block_size, batch.window or 0, owners)

    def run(self, call: AttentionCall) -> None:
        """Write k and v, attend, fill `out`."""
        if self._run is None:
            raise RuntimeError("the native library was not built")
        step: _StepGeometry = call.metadata
        q, k, v, out, sinks = call.q, call.k, call.v, call.out, call.sinks
        self._run(
            q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), call.kv.data_ptr(),
            q.stride(0), k.stride(0), v.stride(0), out.stride(0),
            *step.tables, q.shape[1], k.shape[1], q.shape[2], step.block_size, step.window,
            call.scale, call.softcap, 0 if sinks is None else sinks.data_ptr(),
            ELEMENT_OF_SIZE[q.element_size()], 0, 0,
        )  # fmt: skip
