"""Workers from a decision: in this process, or in one of their own.

Owns: the translation of a decision into what the worker room takes. torch is loaded when a local worker is made.
"""

from __future__ import annotations

import dataclasses

import msgspec

from turret.checkpoint import CheckpointKind, read_ahead
from turret.compose.decide import Decision, decide
from turret.compose.grammars import CheckpointGrammars
from turret.compose.hosts import host_from_plan
from turret.compose.logs import setup_logging
from turret.compose.own_worker import own_worker
from turret.compose.spec import EngineSpec, WorkerSpec
from turret.config import EngineConfig
from turret.contracts import Worker
from turret.plugins import PluginHost
from turret.worker.remote import RemoteWorker, WorkerSpawn
from turret.worker.setup import ModelSource, WorkerLimits, WorkerParts

__all__ = ["local_worker", "make_worker", "worker_from_json", "worker_limits"]

_ENTRY = "turret.compose.worker:worker_from_json"


def make_worker(spec: EngineSpec, decision: Decision, host: PluginHost, max_model_len: int) -> Worker:
    """The worker that `--distributed-executor-backend` asks for; not started."""
    if decision.config.parallel.distributed_executor_backend != "mp":
        return local_worker(spec, decision, max_model_len)
    settled = msgspec.structs.replace(spec, config=_named(decision), rank=0)
    argument = WorkerSpec(engine=settled, plan=host.freeze(), max_model_len=max_model_len).to_json()
    return RemoteWorker(WorkerSpawn(_ENTRY, argument))


def worker_from_json(text: str) -> Worker:
    """In a worker's process: the worker of a `WorkerSpec`; raises PluginError when a plugin differs from the plan."""
    spec = WorkerSpec.from_json(text)
    log = spec.engine.config.observability
    setup_logging(log.log_level, file=log.log_config_file)
    decision = decide(spec.engine, host_from_plan(spec.plan, frozenset({"worker"})), settled=True)
    return local_worker(spec.engine, decision, spec.max_model_len)


def _named(decision: Decision) -> EngineConfig:
    """The config with what was chosen written in, so that nothing is chosen twice."""
    device = dataclasses.replace(
        decision.config.device,
        device=f"{decision.platform.name}:{decision.device_index}",
        attention_backend=decision.attention.name,
    )
    alone = dataclasses.replace(decision.config.parallel, data_parallel_size=1)
    return dataclasses.replace(decision.config, device=device, parallel=alone)


def local_worker(spec: EngineSpec, decision: Decision, max_model_len: int) -> Worker:
    """The platform's own worker, or core's on a thread of this process."""
    if (own := own_worker(spec, decision, max_model_len)) is not None:
        return own
    from turret.worker.local import LocalWorker

    config = decision.config
    if config.load.safetensors_load_strategy == "eager" and spec.checkpoint.kind is CheckpointKind.SAFETENSORS:
        for file in spec.checkpoint.weight_files:
            read_ahead(file)
    grammars = CheckpointGrammars(decision.structured, spec.checkpoint, config) if decision.structured else None
    parts = WorkerParts(decision.platform, decision.attention, decision.architecture, decision.quant, grammars=grammars)
    source = ModelSource(
        spec.checkpoint, decision.model_config, config.model.dtype, config.load.load_format, config.model.seed,
        config.load.packed_cache, config.load.map_location,
    )
    return LocalWorker(parts, source, worker_limits(decision, max_model_len))


def worker_limits(decision: Decision, max_model_len: int) -> WorkerLimits:
    """The limits that a decision means for a worker."""
    config = decision.config
    cache, scheduler = config.cache, config.scheduler
    assert scheduler.max_num_seqs is not None and scheduler.max_num_batched_tokens is not None
    assert cache.block_size is not None
    return WorkerLimits(
        max_model_len=max_model_len,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        block_size=cache.block_size,
        kv_dtype=decision.kv_dtype,
        gpu_memory_utilization=cache.gpu_memory_utilization,
        kv_cache_memory_bytes=cache.kv_cache_memory_bytes,
        num_gpu_blocks_override=cache.num_gpu_blocks_override,
        logprobs_mode=config.model.logprobs_mode,
        device_index=decision.device_index,
        threads=config.device.cpu_threads,
        enforce_eager=config.model.enforce_eager,
    )
