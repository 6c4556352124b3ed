"""Frames between a client and the engine process.

Owns: the tagged unions that travel over the socket. Knows nothing of sockets.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turret.messages.request import Request, TokenEvent

__all__ = [
    "DRAINED_STATS",
    "Abort",
    "ClientFrame",
    "EngineFailure",
    "EngineFrame",
    "EngineReady",
    "EngineStats",
    "Events",
    "Forget",
    "Shutdown",
    "Submit",
    "Utility",
    "UtilityReply",
    "Watch",
]


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """New requests."""

    requests: list[Request]


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Drop these requests now; unknown ids are ignored, since they may just have finished."""

    request_ids: list[str]


class Utility(msgspec.Struct, frozen=True, tag="utility"):
    """Call a named engine method (`reset_prefix_cache`, `stats`, `pid`, ...) with plain arguments."""

    call_id: int
    method: str
    args: list[Any] = []


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """Another client is gone: drop its requests, nobody waits for them."""

    client: bytes


class Watch(msgspec.Struct, frozen=True, tag="watch"):
    """From now on all statistics go to this client, whoever's requests run, and to no other."""


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """End the engine; running requests get an abort event first."""


ClientFrame = Submit | Abort | Utility | Forget | Watch | Shutdown


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters and gauges of the engine after a step.

    Counters (`*_total`) count from the engine's start; gauges are of now. Token counts unless said otherwise.
    `kv_cache_usage` is in [0, 1]. Lists (`DRAINED_STATS`) hold what came since the last frame: the sizes of steps, and
    in seconds how long watched KV blocks stayed, how long they were idle when they were given up, and the times between
    two uses of one. `prompt_tokens_cached_total` are those of `prompt_tokens_total` that the prefix cache held;
    `forward_seconds_total` is the time that workers spent on steps.
    """

    num_running: int = 0
    num_waiting: int = 0
    kv_cache_usage: float = 0.0
    prefix_cache_queries_total: int = 0
    prefix_cache_hits_total: int = 0
    preemptions_total: int = 0
    prompt_tokens_total: int = 0
    generation_tokens_total: int = 0
    prompt_tokens_cached_total: int = 0
    forward_seconds_total: float = 0.0
    step_tokens: list[int] = []
    kv_block_lifetimes: list[float] = []
    kv_block_idle: list[float] = []
    kv_block_reuse_gaps: list[float] = []


DRAINED_STATS = ("step_tokens", "kv_block_lifetimes", "kv_block_idle", "kv_block_reuse_gaps")
"""Fields of `EngineStats` that tell each thing once."""


class EngineReady(msgspec.Struct, frozen=True, tag="ready"):
    """First frame of an engine that is up: facts for logs, limits and metrics."""

    num_blocks: int
    block_size: int
    vocab_size: int
    max_model_len: int
    facts: dict[str, Any]


class Events(msgspec.Struct, frozen=True, tag="events"):
    """What a step did for requests of this client."""

    events: list[TokenEvent]
    stats: EngineStats | None = None


class UtilityReply(msgspec.Struct, frozen=True, tag="reply"):
    """Answer to `Utility`; `error` is a sentence when it failed."""

    call_id: int
    result: Any = None
    error: str | None = None


class EngineFailure(msgspec.Struct, frozen=True, tag="failure"):
    """The engine cannot go on; last frame it sends."""

    message: str


EngineFrame = EngineReady | Events | UtilityReply | EngineFailure
