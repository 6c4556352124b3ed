"""An engine core from a spec: choices made, worker started, cache sized, scheduler filled in.

Owns: the order of a start. Knows nothing of processes' pipes; `turret.engine` calls `build_engine` by its dotted name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from turret.compose.decide import Decision, decide
from turret.compose.hosts import plugin_host
from turret.compose.limits import check_pool, context_length, fitted_context, num_blocks, step_limits
from turret.compose.logs import setup_logging
from turret.compose.spec import EngineSpec
from turret.compose.worker import make_worker
from turret.config import FIT_CONTEXT
from turret.contracts import SchedulerPolicy, Worker
from turret.engine import EngineCore
from turret.kv import KVCacheManager, Residency
from turret.messages import EngineReady, KVCacheConfig, WorkerFacts
from turret.plugins import PluginHost
from turret.scheduler import Scheduler

__all__ = ["build_engine", "engine_in_process"]

logger = logging.getLogger("turret.compose")

Progress = Callable[[str, float], None]
_ROLES = frozenset({"engine", "worker"})


def engine_in_process(text: str, progress: Progress) -> EngineCore:
    """`build_engine` where the whole process is the engine's: its log lines are shown as the options say."""
    log = EngineSpec.from_json(text).config.observability
    setup_logging(log.log_level, file=log.log_config_file)
    return build_engine(text, progress)


def build_engine(text: str, progress: Progress) -> EngineCore:
    """The engine that the spec `text` (JSON) describes, ready to step.

    Raises PluginError, ConfigError and LoadError with one sentence that says what to do.
    """
    spec = EngineSpec.from_json(text)
    began = time.monotonic()
    progress("choosing plugins", 0.0)
    host = plugin_host(spec.config.plugins, _ROLES)
    decision = decide(spec, host)
    policy: SchedulerPolicy = _policy(host, decision.config.scheduler.scheduling_policy)
    progress("choosing plugins", 1.0)
    max_model_len = context_length(spec.config.model, spec.checkpoint)
    worker = make_worker(spec, decision, host, max_model_len)
    try:
        facts = worker.start(progress)
        cache = _cache_config(decision, facts)
        kv = KVCacheManager(cache, _residency(spec))
        if spec.config.model.max_model_len == FIT_CONTEXT:
            max_model_len = fitted_context(kv, max_model_len)
        elif decision.config.cache.num_gpu_blocks_override is None:
            # A pool made small on purpose (to try preemption) refuses what it cannot hold request by request.
            check_pool(kv, facts, max_model_len)
        worker.allocate(cache)
    except BaseException:
        worker.shutdown()
        raise
    limits = step_limits(decision.config.scheduler, max_model_len)
    scheduler = Scheduler(limits, kv, policy)
    logger.debug("engine ready after %.2f s", time.monotonic() - began)
    ready = EngineReady(
        num_blocks=cache.num_blocks,
        block_size=cache.block_size,
        vocab_size=facts.vocab_size,
        max_model_len=max_model_len,
        facts=_facts(decision, host, facts, worker),
    )
    return EngineCore(scheduler, worker, ready, limits.async_depth)


def _policy(host: PluginHost, name: str) -> SchedulerPolicy:
    policy: SchedulerPolicy = host.load(host.select("policy", key=name, explicit=name).require())
    return policy


def _residency(spec: EngineSpec) -> Residency | None:
    told = spec.config.observability
    return Residency(told.kv_cache_metrics_sample) if told.kv_cache_metrics else None


def _cache_config(decision: Decision, facts: WorkerFacts) -> KVCacheConfig:
    cache = decision.config.cache
    return KVCacheConfig(
        num_blocks=num_blocks(cache, facts),
        block_size=facts.block_size,
        groups=facts.groups,
        enable_prefix_caching=cache.enable_prefix_caching,
        hash_algo=cache.prefix_caching_hash_algo,
    )


def _facts(decision: Decision, host: PluginHost, facts: WorkerFacts, worker: Worker) -> dict[str, Any]:
    """What people and dashboards want to know of a running engine; plain values only."""
    plan = [f"{e.label} ({e.distribution} {e.version})" for e in host.freeze().entries]
    return {
        **decision.names,
        "device": facts.device,
        "placed_on": f"{decision.platform.name}:{decision.device.index}",
        "device_name": decision.device.name,
        "device_memory": decision.device.total_memory,
        "weight_bytes": facts.weight_bytes,
        "load_seconds": round(facts.load_seconds, 3),
        "plugins": plan,
        "cache_dtype": decision.kv_dtype,
        "gpu_memory_utilization": decision.config.cache.gpu_memory_utilization,
        "max_num_seqs": decision.config.scheduler.max_num_seqs,
        "max_num_batched_tokens": decision.config.scheduler.max_num_batched_tokens,
        "worker_pid": worker.call("pid", []),
    }
