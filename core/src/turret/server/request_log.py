"""What is told about requests and about the engine's pace: log lines, and numbers to plugins that listen.

Owns: what is said and how often. Knows nothing of where logs go.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from turret.config import ObservabilityConfig
from turret.messages import EngineStats
from turret.plugins import Hooks
from turret.plugins.events import MetricsSnapshot
from turret.server.expansion import Generation
from turret.text import TextProcessor

__all__ = ["RequestLog", "tell_metrics", "tell_pace"]

log = logging.getLogger("turret.server")

_PACE_SECONDS = 10.0
_METRICS_SECONDS = 1.0


class RequestLog:
    """One line for each call with --enable-log-requests; its prompt only at log level debug, cut to --max-log-len."""

    def __init__(self, config: ObservabilityConfig, text: TextProcessor) -> None:
        self._enabled = config.enable_log_requests
        self._max_len = config.max_log_len
        self._text = text

    def received(self, job: Generation) -> None:
        """A call was taken in."""
        if not self._enabled:
            return
        sizes = ", ".join(str(len(prompt)) for prompt in job.prompts)
        log.info("request %s: prompts of %s tokens, up to %s tokens each, %s",
                 job.request_id, sizes, max(job.max_tokens), job.params)
        if log.isEnabledFor(logging.DEBUG):
            for prompt in job.prompts:
                log.debug("request %s: %r", job.request_id, self._shown(prompt))

    def _shown(self, prompt: list[int]) -> str | list[int]:
        if not self._text.has_tokenizer:
            return prompt[: self._max_len]
        return self._text.tokenizer.decode(prompt, skip_special_tokens=False)[: self._max_len]


async def tell_pace(read: Callable[[], EngineStats]) -> None:
    """A line every ten seconds in which tokens were processed; silent on an idle server. Runs until cancelled."""
    before, began = read(), time.monotonic()
    while True:
        await asyncio.sleep(_PACE_SECONDS)
        now, ended = read(), time.monotonic()
        seconds = ended - began
        prompt = now.prompt_tokens_total - before.prompt_tokens_total
        output = now.generation_tokens_total - before.generation_tokens_total
        if prompt or output:
            queries = now.prefix_cache_queries_total - before.prefix_cache_queries_total
            hits = now.prefix_cache_hits_total - before.prefix_cache_hits_total
            log.info(
                "prompt %.1f tokens/s, output %.1f tokens/s; %d running, %d waiting; KV cache %.1f%% used, %.0f%% of "
                "prompt tokens cached", prompt / seconds, output / seconds, now.num_running, now.num_waiting,
                100 * now.kv_cache_usage, 100 * hits / max(queries, 1),
            )
        before, began = now, ended


async def tell_metrics(hooks: Hooks, read: Callable[[], EngineStats]) -> None:
    """The engine's numbers to every listener, once a second while they change. Runs until cancelled."""
    before = None
    while hooks.active:
        await asyncio.sleep(_METRICS_SECONDS)
        now = read()
        if now != before:
            numbers = {name: float(value) for name, value in msgspec.to_builtins(now).items() if _is_number(value)}
            hooks.notify("metrics", MetricsSnapshot(numbers))
        before = now


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))
