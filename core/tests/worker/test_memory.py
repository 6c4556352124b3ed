"""The size of the KV cache, and the sentence when there is none."""

from __future__ import annotations

import pytest
import tiny

from turret.contracts import MemoryInfo
from turret.errors import ConfigError
from turret.worker.local import LocalWorker
from turret.worker.memory import MemoryDemand, kv_bytes

GIB = 1 << 30
DEMAND = MemoryDemand(weights=2 * GIB, activations=GIB, block=GIB // 64)


def size(memory: MemoryInfo, **limits) -> int:
    return kv_bytes(tiny.limits(num_gpu_blocks_override=None, **limits), memory, DEMAND)


def test_what_the_share_leaves_beside_weights_and_activations():
    assert size(MemoryInfo(10 * GIB, 9 * GIB, 3 * GIB), gpu_memory_utilization=0.5) == GIB
    assert size(MemoryInfo(10 * GIB, 9 * GIB, GIB), gpu_memory_utilization=0.5) == 2 * GIB, "mapped weights count"
    assert size(MemoryInfo(10 * GIB, 2 * GIB, 3 * GIB), gpu_memory_utilization=0.9) == GIB, "others use the rest"


def test_told_sizes_are_taken_as_told():
    nothing = MemoryInfo(GIB, 0, GIB)
    assert size(nothing, kv_cache_memory_bytes=GIB) == GIB
    assert kv_bytes(tiny.limits(num_gpu_blocks_override=7), nothing, DEMAND) == 7 * DEMAND.block
    with pytest.raises(ConfigError, match="holds no block: 2 blocks of 4 tokens take 33554432 bytes"):
        size(nothing, kv_cache_memory_bytes=1000)


def test_nothing_left_says_the_true_numbers():
    with pytest.raises(ConfigError) as caught:
        size(MemoryInfo(4 * GIB, 3 * GIB, 2 * GIB), gpu_memory_utilization=0.6)
    assert "0.6 of 4.00 GiB is 2.40 GiB; 2.00 GiB of it are used (weights: 2.00 GiB)" in str(caught.value)
    assert "activations need 1.00 GiB, 3.00 GiB are free" in str(caught.value)


def test_a_worker_measures_and_refuses_a_device_that_is_too_small():
    worker = LocalWorker(tiny.parts(), tiny.dummy_source(), tiny.limits(num_gpu_blocks_override=None))
    facts = worker.start()
    assert 3 * GIB < facts.kv_bytes < 0.9 * 4 * GIB
    assert facts.num_blocks == facts.kv_bytes // (facts.page_bytes * facts.slots)
    worker.shutdown()
    bounds = tiny.limits(num_gpu_blocks_override=None)
    small = LocalWorker(tiny.parts(memory_bytes=1 << 20), tiny.dummy_source(), bounds)
    with pytest.raises(ConfigError, match="no memory is left for the KV cache"):
        small.start()
    small.shutdown()
