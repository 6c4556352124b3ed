"""Which op of a model runs on whose kernels, and whether its forward is recorded: found by starting a worker.

Owns: `explain_ops`. Knows no platform.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from turret.compose.decide import decide
from turret.compose.find import find_model
from turret.compose.spec import EngineSpec
from turret.compose.worker import local_worker
from turret.config import Config
from turret.messages import KVCacheConfig
from turret.plugins import PluginHost

__all__ = ["explain_ops"]

_BLOCKS_PER_GROUP = 8


def explain_ops(model: str, host: PluginHost) -> dict[str, Any]:
    """Load a model as `turret serve` would, with a small cache, and ask its worker; raises what a start raises."""
    config = Config()
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, model=model))
    found = find_model(config)
    spec = EngineSpec(config=found.config.engine, checkpoint=found.checkpoint, user_set=("model",))
    worker = local_worker(spec, decide(spec, host), found.max_model_len)
    try:
        facts = worker.start()
        blocks = 1 + _BLOCKS_PER_GROUP * len(facts.groups)
        worker.allocate(KVCacheConfig(num_blocks=blocks, block_size=facts.block_size, groups=facts.groups))
        told: dict[str, Any] = worker.call("ops", [])
        return {"model": found.checkpoint.name, "device": facts.device, **told}
    finally:
        worker.shutdown()
