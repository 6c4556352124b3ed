"""How much memory the KV cache may have.

Owns: the arithmetic and the message when nothing is left. Knows nothing of tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from turret.contracts import MemoryInfo
from turret.errors import ConfigError
from turret.worker.setup import WorkerLimits

__all__ = ["MemoryDemand", "kv_bytes"]

_LEAST_BLOCKS = 2
"""The null block and one to use."""


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """What the model needs besides the cache, and one block over all layers that share it; in bytes."""

    weights: int
    activations: int
    block: int


def kv_bytes(limits: WorkerLimits, memory: MemoryInfo, demand: MemoryDemand) -> int:
    """Bytes for the KV cache: as told, or what the memory share leaves beside weights and activations.

    Raises ConfigError with the true numbers when that is not even one block.
    """
    if limits.num_gpu_blocks_override is not None:
        return limits.num_gpu_blocks_override * demand.block
    if limits.kv_cache_memory_bytes is not None:
        found = limits.kv_cache_memory_bytes
        if found < _LEAST_BLOCKS * demand.block:
            raise ConfigError(
                f"--kv-cache-memory-bytes {found} holds no block: {_LEAST_BLOCKS} blocks of {limits.block_size} tokens "
                f"take {_LEAST_BLOCKS * demand.block} bytes", "kv-cache-memory-bytes")
        return found
    share = int(limits.gpu_memory_utilization * memory.total)
    # Weights that are mapped files count as used although they may not all be resident yet.
    used = max(memory.used_here, demand.weights)
    left = min(share - used, memory.free) - demand.activations
    if left < _LEAST_BLOCKS * demand.block:
        raise ConfigError(
            f"no memory is left for the KV cache: --gpu-memory-utilization {limits.gpu_memory_utilization} of "
            f"{_gib(memory.total)} is {_gib(share)}; {_gib(used)} of it are used (weights: {_gib(demand.weights)}), "
            f"activations need {_gib(demand.activations)}, {_gib(memory.free)} are free. Raise the share, lower "
            "--max-num-batched-tokens, or take a smaller model", "gpu-memory-utilization")
    return left


def _gib(value: int) -> str:
    return f"{value / 2**30:.2f} GiB"
