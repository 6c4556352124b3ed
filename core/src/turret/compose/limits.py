"""Lengths and sizes that follow from the model and the options.

Owns: the context length and the step's limits. Knows no plugin.
"""

from __future__ import annotations

import logging

from turret.checkpoint import Checkpoint, max_context, overridden
from turret.config import FIT_CONTEXT, CacheConfig, ModelConfig, SchedulerConfig
from turret.errors import ConfigError
from turret.kv import KVCacheManager
from turret.messages import WorkerFacts
from turret.scheduler import SchedulerLimits

__all__ = ["check_pool", "context_length", "fitted_context", "num_blocks", "step_limits"]

logger = logging.getLogger("turret.compose")

_DEFAULT_CONTEXT = 2048
_LEAST_CONTEXT = 2
_ASYNC_DEPTH = 2


def context_length(model: ModelConfig, checkpoint: Checkpoint) -> int:
    """Longest prompt plus output in tokens: the user's, else the model's; raises ConfigError when it is too long. What
    is fitted to the KV cache is at most the model's.

    `hf_overrides` may raise the model's own length (rope scaling on demand).
    """
    config = overridden(checkpoint.config, model.hf_overrides)
    own = max_context(config) if model.hf_overrides else checkpoint.max_context
    window = config.get("sliding_window")
    if model.disable_sliding_window and isinstance(window, int):
        own = min(own or window, window)
    if model.max_model_len in (None, FIT_CONTEXT):
        return own or _DEFAULT_CONTEXT
    if own is not None and model.max_model_len > own:
        raise ConfigError(
            f"--max-model-len {model.max_model_len} is more than the {own} tokens that {checkpoint.name} was made for; "
            'ask for less, or change the model\'s own length with --hf-overrides \'{"max_position_embeddings": N}\'',
            "max-model-len",
        )
    return model.max_model_len


def step_limits(config: SchedulerConfig, max_model_len: int) -> SchedulerLimits:
    """Limits of a step from resolved options (nothing is None any more)."""
    assert config.max_num_seqs is not None and config.max_num_batched_tokens is not None
    return SchedulerLimits(
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_num_seqs=config.max_num_seqs,
        max_model_len=max_model_len,
        max_num_partial_prefills=config.max_num_partial_prefills,
        max_long_partial_prefills=config.max_long_partial_prefills,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
        enable_chunked_prefill=config.enable_chunked_prefill,
        async_depth=_ASYNC_DEPTH if config.async_scheduling else 1,
    )


def num_blocks(cache: CacheConfig, facts: WorkerFacts) -> int:
    """Blocks of the pool: as told, or as many as the worker's memory for pages holds."""
    return cache.num_gpu_blocks_override or facts.num_blocks


def fitted_context(kv: KVCacheManager, longest: int) -> int:
    """As much of the context as one request alone can have; raises ConfigError when that is nothing."""
    fits = kv.longest_sequence(longest)
    if fits < _LEAST_CONTEXT:
        raise ConfigError(
            f"--max-model-len auto: the KV cache holds {fits} tokens of one request, and a prompt and an answer are "
            f"{_LEAST_CONTEXT} at least; raise --gpu-memory-utilization or --kv-cache-memory-bytes",
            "max-model-len",
        )
    logger.info("the context is %d tokens, what the KV cache holds of the model's %d", fits, longest)
    return fits


def check_pool(kv: KVCacheManager, facts: WorkerFacts, max_model_len: int) -> None:
    """Raise ConfigError with true numbers when one request of full length could never run."""
    if kv.can_ever_fit(max_model_len):
        return
    fits = kv.longest_sequence(max_model_len)
    block = facts.page_bytes * facts.slots
    needed, there = kv.blocks_needed(max_model_len) * block, kv.num_usable_blocks * block
    raise ConfigError(
        f"the KV cache has {there / 2**20:.4g} MiB, which hold {fits} tokens of one request, but one of "
        f"--max-model-len {max_model_len} needs {needed / 2**20:.4g} MiB; lower --max-model-len to {fits}, or raise "
        "--gpu-memory-utilization or --kv-cache-memory-bytes",
        "max-model-len",
    )
