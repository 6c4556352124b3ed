"""Prometheus metrics: names, labels and buckets that dashboards for vLLM know, under `turret:`.

Owns: the registry and every series in it. Knows nothing of where the numbers come from: the generator reports requests,
and engine counters are read from `EngineStats` at scrape time. Every child exists at zero from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turret.messages import EngineStats, FinishReason
from turret.server.buckets import FIRST_TOKEN, INTER_TOKEN, N_CHOICES, PHASE, STEP_TOKENS, token_buckets

__all__ = ["ServerMetrics"]

LABELS = ("model_name", "engine")

COUNTERS = {
    "prefix_cache_queries": ("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."),
    "prefix_cache_hits": ("prefix_cache_hits_total", "Prompt tokens found in the prefix cache."),
    "num_preemptions": ("preemptions_total", "Requests that lost their cache and were recomputed."),
    "prompt_tokens": ("prompt_tokens_total", "Prompt tokens processed."),
    "generation_tokens": ("generation_tokens_total", "Tokens generated."),
}
GAUGES = {
    "num_requests_running": ("num_running", "Requests in the batch."),
    "num_requests_waiting": ("num_waiting", "Requests in the queue."),
    "kv_cache_usage_perc": ("kv_cache_usage", "Share of the KV cache in use, 0 to 1."),
}


class _EngineSeries(Collector):
    """Series that are read from the engine when somebody scrapes."""

    def __init__(self, read: Callable[[], EngineStats], labels: tuple[str, str]) -> None:
        self._read = read
        self._labels = labels

    def collect(self) -> Iterable[Metric]:
        """The engine's counters and gauges as of now."""
        stats = self._read()
        for name, (field, text) in COUNTERS.items():
            counter = CounterMetricFamily(f"turret:{name}", text, labels=LABELS)
            counter.add_metric(self._labels, getattr(stats, field))
            yield counter
        for name, (field, text) in GAUGES.items():
            gauge = GaugeMetricFamily(f"turret:{name}", text, labels=LABELS)
            gauge.add_metric(self._labels, getattr(stats, field))
            yield gauge


class ServerMetrics:
    """All series of one server. With `engine_series` off only HTTP-side request series remain."""

    def __init__(self, model_name: str, max_model_len: int, read_stats: Callable[[], EngineStats] | None) -> None:
        self._registry = CollectorRegistry()
        self._labels = (model_name, "0")
        self._finished = self._by_reason()
        tokens = token_buckets(max_model_len)
        self.prompt_tokens = self._histogram("request_prompt_tokens", "Prompt tokens of a request.", tokens)
        self.generation_tokens = self._histogram("request_generation_tokens", "Tokens a request got.", tokens)
        self.max_generation_tokens = self._histogram(
            "request_max_num_generation_tokens", "Longest of a request's choices, in tokens.", tokens
        )
        self.params_n = self._histogram("request_params_n", "Choices asked for.", N_CHOICES)
        self.params_max_tokens = self._histogram("request_params_max_tokens", "Limit asked for.", tokens)
        self.first_token = self._histogram("time_to_first_token_seconds", "Arrival to first token.", FIRST_TOKEN)
        self.inter_token = self._histogram("inter_token_latency_seconds", "Between tokens.", INTER_TOKEN)
        self.per_token = self._histogram(
            "request_time_per_output_token_seconds", "Mean time between a request's tokens.", INTER_TOKEN
        )
        self.latency = self._histogram("e2e_request_latency_seconds", "Arrival to last token.", PHASE)
        self.queue_time = self._histogram("request_queue_time_seconds", "Waiting for the first step.", PHASE)
        self.inference_time = self._histogram("request_inference_time_seconds", "First step to last token.", PHASE)
        self.prefill_time = self._histogram("request_prefill_time_seconds", "First step to first token.", PHASE)
        self.decode_time = self._histogram("request_decode_time_seconds", "First token to last token.", PHASE)
        self.step_tokens = self._histogram("iteration_tokens_total", "Tokens per engine step.", STEP_TOKENS)
        if read_stats is not None:
            self._registry.register(_EngineSeries(read_stats, self._labels))

    def saw_stats(self, stats: EngineStats) -> None:
        """The engine told its statistics: each step's size is counted once."""
        for size in stats.step_tokens:
            self.step_tokens.observe(size)

    def finished(self, reason: str) -> None:
        """Count one choice that ended."""
        self._finished[reason].inc()

    def cache_config(self, settings: Mapping[str, Any]) -> None:
        """Publish the cache's settings as labels of a gauge that is always 1."""
        labels = {**{name: str(value) for name, value in settings.items()}, "engine": "0"}
        gauge = Gauge("turret:cache_config_info", "Settings of the KV cache.", tuple(labels), registry=self._registry)
        gauge.labels(**labels).set(1)

    def expose(self) -> bytes:
        """All series in Prometheus text format 0.0.4."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(f"turret:{name}", text, LABELS, buckets=buckets, registry=self._registry)
        return family.labels(*self._labels)

    def _by_reason(self) -> dict[str, Counter]:
        family = Counter(
            "turret:request_success", "Choices that ended, by reason.", (*LABELS, "finished_reason"),
            registry=self._registry,
        )
        return {reason.value: family.labels(*self._labels, reason.value) for reason in FinishReason}
