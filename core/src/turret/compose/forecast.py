"""What serving a model would take and which plugins would do it, found out without loading weights.

Owns: the order of these questions. Knows nothing of how the answers are shown. The model is built without memory (on
torch's meta device), so its KV pages are those of the real one; weights are counted from the files' own tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from turret.compose.decide import Decision, decide
from turret.compose.find import find_model
from turret.compose.hosts import plugin_host
from turret.compose.limits import fitted_context
from turret.compose.spec import EngineSpec
from turret.compose.worker import worker_limits
from turret.config import FIT_CONTEXT, Config
from turret.contracts import ModelContext
from turret.errors import ConfigError
from turret.kv import KVCacheManager
from turret.messages import KVCacheConfig, KVGroup

__all__ = ["Forecast", "forecast"]

_RESERVE_BYTES = 64 << 20
_WIDTHS = MappingProxyType({"float32": 4, "bfloat16": 2, "float16": 2})
_LENGTHS = (1024, 4096, 16384, 65536)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Sizes are bytes. `weight_bytes` are those of the files, in the type to compute in where they are not quantized.
    `kv_bytes` is what is left beside weights and logits; a step's scratch, known only once one ran, comes off it.
    `users` says for a number of tokens (prompt and output) how many requests of that length fit at once."""

    model: str
    names: Mapping[str, str]
    plugins: list[str]
    max_model_len: int
    memory_bytes: int
    weight_bytes: int
    kv_bytes: int
    kv_bytes_per_token: int
    kv_tokens: int
    users: Mapping[int, int]
    limits: Mapping[str, Any]


def forecast(config: Config, user_set: tuple[str, ...]) -> Forecast:
    """Choose as an engine would, and count; raises what the start of an engine raises for the same reasons."""
    found = find_model(config)
    spec = EngineSpec(config=found.config.engine, checkpoint=found.checkpoint, user_set=user_set)
    host = plugin_host(spec.config.plugins, frozenset({"engine", "worker"}))
    decision = decide(spec, host)
    name = decision.config.scheduler.scheduling_policy
    host.load(host.select("policy", key=name, explicit=name).require())
    weights, vocab_size = _weights(spec, decision)
    page, groups = _pages(decision, found.max_model_len)
    block = page * max(len(group.layers) for group in groups)
    memory = decision.platform.memory(decision.device_index)
    size = _kv_bytes(decision, block, weights, vocab_size)
    pool = _pool(decision, groups, size // block)
    fit = spec.config.model.max_model_len == FIT_CONTEXT
    max_model_len = fitted_context(pool, found.max_model_len) if fit else found.max_model_len
    return Forecast(
        model=found.checkpoint.name,
        names=decision.names,
        plugins=[f"{e.label} ({e.distribution} {e.version})" for e in host.freeze().entries],
        max_model_len=max_model_len,
        memory_bytes=memory.total,
        weight_bytes=weights,
        kv_bytes=size,
        kv_bytes_per_token=block * len(groups) // pool.block_size,
        kv_tokens=pool.num_usable_blocks // len(groups) * pool.block_size,
        users=_users(pool, max_model_len),
        limits={
            "max_num_seqs": decision.config.scheduler.max_num_seqs,
            "max_num_batched_tokens": decision.config.scheduler.max_num_batched_tokens,
            "gpu_memory_utilization": decision.config.cache.gpu_memory_utilization,
        },
    )


def _weights(spec: EngineSpec, decision: Decision) -> tuple[int, int]:
    """(bytes of the weights, rows of the vocabulary); files are mapped, not read."""
    from turret.worker.stored import stored_tensors

    vocab_size = int(decision.model_config.get("vocab_size") or 0)
    if decision.config.load.load_format == "dummy":
        raise ConfigError("weights are counted from a model's files, and --load-format dummy has none", "load-format")
    stored = stored_tensors(spec.checkpoint, decision.model_config, decision.config.load.map_location)
    if decision.quant is not None:
        return sum(t.data.nbytes for t in stored), vocab_size
    width = _WIDTHS[decision.config.model.dtype]
    return sum(math.prod(t.shape) for t in stored) * width, vocab_size


def _pages(decision: Decision, max_model_len: int) -> tuple[int, list[KVGroup]]:
    """Bytes of one layer's KV page, and how layers share pages."""
    from turret.nn import LayerFactory, OpTable
    from turret.worker.kv_cache import common_layout

    dtype, block_size = decision.config.model.dtype, decision.config.cache.block_size
    assert block_size is not None
    factory = LayerFactory(dtype, "meta", max_model_len, OpTable.resolve([]), None)
    model = decision.architecture.build(decision.model_config, ModelContext(dtype, "meta", max_model_len, factory))
    layouts = [decision.attention.kv_layout(s) for s in factory.kv_specs(block_size, decision.kv_dtype)]
    return common_layout(layouts).page_bytes, model.kv_groups()


def _kv_bytes(decision: Decision, block: int, weights: int, vocab_size: int) -> int:
    """Bytes for the cache by the worker's own arithmetic, logits and a reserve being all that is known of a step."""
    from turret.worker.memory import MemoryDemand, kv_bytes

    limits = worker_limits(decision, 1)
    activations = 2 * 4 * limits.max_num_seqs * vocab_size + _RESERVE_BYTES
    demand = MemoryDemand(weights, activations, block)
    return kv_bytes(limits, decision.platform.memory(decision.device_index), demand)


def _pool(decision: Decision, groups: list[KVGroup], num_blocks: int) -> KVCacheManager:
    size = decision.config.cache.block_size
    assert size is not None
    return KVCacheManager(KVCacheConfig(num_blocks=num_blocks, block_size=size, groups=groups))


def _users(pool: KVCacheManager, max_model_len: int) -> dict[int, int]:
    """How many requests of a length fit, for usual lengths and the longest."""
    lengths = [*(n for n in _LENGTHS if n < max_model_len), max_model_len]
    return {n: pool.num_usable_blocks // pool.blocks_needed(n) for n in lengths}
