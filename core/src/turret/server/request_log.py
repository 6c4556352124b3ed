"""What is told about requests and about the engine's pace: log lines, and numbers to plugins that listen.

Owns: what is said and how often. Knows nothing of where logs go.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from turret.config import ObservabilityConfig
from turret.messages import EngineStats
from turret.plugins import Hooks
from turret.plugins.events import MetricsSnapshot
from turret.server.choices import ChoiceDelta
from turret.server.expansion import Generation
from turret.server.results import Run
from turret.text import TextProcessor

__all__ = ["RequestLog", "tell_metrics", "tell_pace"]

log = logging.getLogger("turret.server")

_PACE_SECONDS = 10.0
_METRICS_SECONDS = 1.0


class RequestLog:
    """One line for each call with --enable-log-requests, its prompt only at log level debug; with --enable-log-outputs
    one for each choice that it got. Texts are cut to --max-log-len."""

    def __init__(self, config: ObservabilityConfig, text: TextProcessor) -> None:
        self._enabled = config.enable_log_requests
        self._outputs = config.enable_log_requests and config.enable_log_outputs
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

    def watched(self, run: Run) -> Run:
        """`run`, or with --enable-log-outputs one that is logged as it goes by."""
        return _LoggedRun(run, self._max_len) if self._outputs else run

    def _shown(self, prompt: list[int]) -> str | list[int]:
        if not self._text.has_tokenizer:
            return prompt[: self._max_len]
        return self._text.tokenizer.decode(prompt, skip_special_tokens=False)[: self._max_len]


class _LoggedRun:
    """A run whose choices are told as they end, and as far as they came when it ends before them."""

    def __init__(self, run: Run, max_len: int | None) -> None:
        self.job = run.job
        self.choices = run.choices
        self._run = run
        self._max_len = max_len
        self._texts = dict.fromkeys((choice.index for choice in run.choices), "")

    @property
    def num_output_tokens(self) -> int:
        """The run's."""
        return self._run.num_output_tokens

    @property
    def num_cached_tokens(self) -> int:
        """The run's."""
        return self._run.num_cached_tokens

    async def deltas(self) -> AsyncGenerator[ChoiceDelta, None]:
        """The run's."""
        try:
            async with aclosing(self._run.deltas()) as deltas:
                async for delta in deltas:
                    self._texts[delta.index] += delta.text
                    if delta.finish_reason is not None:
                        self._tell(delta.index, delta.finish_reason)
                    yield delta
        finally:
            for index in list(self._texts):
                self._tell(index, "unfinished")

    def _tell(self, index: int, reason: str) -> None:
        text = self._texts.pop(index)
        log.info("request %s: choice %d (%s): %r", self.job.request_id, index, reason, text[: self._max_len])


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
