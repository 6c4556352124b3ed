"""Prometheus metrics: names, labels and buckets that dashboards for vLLM know, under `turret:`.

Owns: the registry and the series of requests and engines. Knows nothing of where the numbers come from: the generator
reports requests, and engine counters are read from `EngineStats` at scrape time. Every child exists at zero from the
start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turret.messages import EngineStats, FinishReason
from turret.server.buckets import FIRST_TOKEN, INTER_TOKEN, N_CHOICES, PHASE, RESIDENCY, STEP_TOKENS, token_buckets
from turret.server.faults import REFUSALS
from turret.server.http_metrics import HttpSeries

__all__ = ["MetricsShape", "RequestSeries", "ServerMetrics"]

LABELS = ("model_name", "engine")

COUNTERS = {
    "prefix_cache_queries": ("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."),
    "prefix_cache_hits": ("prefix_cache_hits_total", "Prompt tokens found in the prefix cache."),
    "num_preemptions": ("preemptions_total", "Requests that lost their cache and were recomputed."),
    "prompt_tokens": ("prompt_tokens_total", "Prompt tokens processed."),
    "generation_tokens": ("generation_tokens_total", "Tokens generated."),
    "prompt_tokens_cached": ("prompt_tokens_cached_total", "Prompt tokens that were not computed again."),
    "forward_seconds": ("forward_seconds_total", "Seconds that the worker spent on steps (turret's own)."),
}
NOTHING_YET = {
    "external_prefix_cache_queries": "Prompt tokens looked up in a cache outside the engine (there is none).",
    "external_prefix_cache_hits": "Prompt tokens found there.",
    "mm_cache_queries": "Media looked up in the cache of processed media (there is none).",
    "mm_cache_hits": "Media found there.",
    "corrupted_requests": "Requests whose logits were no numbers (they fail instead, and count as errors).",
    "spec_decode_num_drafts": "Drafts that were proposed (there is no speculative decoding).",
    "spec_decode_num_draft_tokens": "Tokens of drafts.",
    "spec_decode_num_accepted_tokens": "Tokens of drafts that were accepted.",
}
"""Counters of what is not here, which dashboards read all the same: always 0."""
BLOCK_STAYS = {
    "kv_block_lifetimes": ("kv_block_lifetime_seconds", "From a KV block's being taken to its being taken again."),
    "kv_block_idle": ("kv_block_idle_before_evict_seconds", "From a KV block's last use to its being taken again."),
    "kv_block_reuse_gaps": ("kv_block_reuse_gap_seconds", "Between two uses of a KV block."),
}
"""With --kv-cache-metrics, of the blocks that are watched."""
GAUGES = {
    "num_requests_running": ("num_running", "Requests in the batch."),
    "num_requests_waiting": ("num_waiting", "Requests in the queue."),
    "kv_cache_usage_perc": ("kv_cache_usage", "Share of the KV cache in use, 0 to 1."),
}


OURS = re.compile(rb"^(# (?:HELP|TYPE) )?turret:")
OLDER = {
    b"kv_cache_usage_perc": b"gpu_cache_usage_perc",
    b"inter_token_latency_seconds": b"time_per_output_token_seconds",
}


class _EngineSeries(Collector):
    """Series that are read from the engines when somebody scrapes."""

    def __init__(self, read: Callable[[], Sequence[EngineStats]], model_name: str) -> None:
        self._read = read
        self._model_name = model_name

    def collect(self) -> Iterable[Metric]:
        """The engines' counters and gauges as of now."""
        found = self._read()
        for name, (field, text) in COUNTERS.items():
            counter = CounterMetricFamily(f"turret:{name}", text, labels=LABELS)
            for index, stats in enumerate(found):
                counter.add_metric((self._model_name, str(index)), getattr(stats, field))
            yield counter
        for name, (field, text) in GAUGES.items():
            gauge = GaugeMetricFamily(f"turret:{name}", text, labels=LABELS)
            for index, stats in enumerate(found):
                gauge.add_metric((self._model_name, str(index)), getattr(stats, field))
            yield gauge
        yield self._prompt_tokens_by_source(found)
        yield from self._fixed(found)

    def _prompt_tokens_by_source(self, found: Sequence[EngineStats]) -> Metric:
        counter = CounterMetricFamily(
            "turret:prompt_tokens_by_source", "Prompt tokens, by where their keys and values came from.",
            labels=(*LABELS, "source"),
        )  # fmt: skip
        for index, stats in enumerate(found):
            cached = stats.prompt_tokens_cached_total
            by_source = {"local_compute": stats.prompt_tokens_total - cached, "local_cache_hit": cached,
                         "external_kv_transfer": 0}  # fmt: skip
            for source, tokens in by_source.items():
                counter.add_metric((self._model_name, str(index), source), tokens)
        return counter

    def _fixed(self, found: Sequence[EngineStats]) -> Iterable[Metric]:
        """What dashboards read and what never changes here."""
        waiting = GaugeMetricFamily(
            "turret:num_requests_waiting_by_reason", "Requests in the queue, by what they wait for.",
            labels=(*LABELS, "reason"),
        )  # fmt: skip
        sleep = GaugeMetricFamily(
            "turret:engine_sleep_state", "1 for the state the engine is in.", labels=(*LABELS, "sleep_state")
        )
        nothing = {name: CounterMetricFamily(f"turret:{name}", text, labels=LABELS)
                   for name, text in NOTHING_YET.items()}  # fmt: skip
        accepted = CounterMetricFamily(
            "turret:spec_decode_num_accepted_tokens_per_pos", "Tokens of drafts that were accepted, by position.",
            labels=(*LABELS, "position"),
        )  # fmt: skip
        adapters = GaugeMetricFamily(
            "turret:lora_requests_info", "When the adapters in use were last told (there are none).",
            labels=("max_lora", "running_lora_adapters", "waiting_lora_adapters"),
        )  # fmt: skip
        adapters.add_metric(("0", "", ""), 0)
        for index, stats in enumerate(found):
            labels = (self._model_name, str(index))
            waiting.add_metric((*labels, "capacity"), stats.num_waiting)
            waiting.add_metric((*labels, "deferred"), 0)
            for state in ("awake", "weights_offloaded", "discard_all"):
                sleep.add_metric((*labels, state), float(state == "awake"))
            accepted.add_metric((*labels, "0"), 0)
            for counter in nothing.values():
                counter.add_metric(labels, 0)
        yield from (waiting, sleep, accepted, adapters, *nothing.values())


class RequestSeries:
    """What is observed of the requests of one engine."""

    def __init__(self, families: Mapping[str, Histogram], reasons: Counter, labels: tuple[str, str]) -> None:
        def child(name: str) -> Histogram:
            return families[name].labels(*labels)

        self._finished = {reason.value: reasons.labels(*labels, reason.value) for reason in FinishReason}
        self.prompt_tokens = child("request_prompt_tokens")
        self.computed_tokens = child("request_prefill_kv_computed_tokens")
        self.generation_tokens = child("request_generation_tokens")
        self.max_generation_tokens = child("request_max_num_generation_tokens")
        self.params_n = child("request_params_n")
        self.params_max_tokens = child("request_params_max_tokens")
        self.first_token = child("time_to_first_token_seconds")
        self.inter_token = child("inter_token_latency_seconds")
        self.per_token = child("request_time_per_output_token_seconds")
        self.latency = child("e2e_request_latency_seconds")
        self.queue_time = child("request_queue_time_seconds")
        self.inference_time = child("request_inference_time_seconds")
        self.prefill_time = child("request_prefill_time_seconds")
        self.decode_time = child("request_decode_time_seconds")
        self.step_tokens = child("iteration_tokens_total")

    def finished(self, reason: str) -> None:
        """Count one choice that ended."""
        self._finished[reason].inc()


@dataclass(frozen=True, slots=True)
class MetricsShape:
    """What series there are: of which model and how many engines, their buckets, a second prefix for all names, and
    whether it is told how long KV blocks stay."""

    model_name: str
    max_model_len: int
    num_engines: int = 1
    compat: str | None = None
    kv_blocks: bool = False


class ServerMetrics:
    """All series of one server. Without `read_stats` (the statistics of each engine, in order) only request series
    remain."""

    def __init__(self, shape: MetricsShape, read_stats: Callable[[], Sequence[EngineStats]] | None) -> None:
        self._registry = CollectorRegistry()
        self._compat = shape.compat
        self.http = HttpSeries(self._registry)
        ProcessCollector(registry=self._registry)
        model_name, engines = shape.model_name, range(shape.num_engines)
        shapes = _histograms(token_buckets(shape.max_model_len))
        families = {name: self._histogram(name, text, buckets) for name, text, buckets in shapes}
        reasons = Counter(
            "turret:request_success", "Choices that ended, by reason.", (*LABELS, "finished_reason"),
            registry=self._registry,
        )
        refusals = Counter(
            "turret:requests_refused", "Calls that got no work done, by why.", ("model_name", "reason"),
            registry=self._registry,
        )  # fmt: skip
        self._refusals = {reason: refusals.labels(model_name, reason) for reason in REFUSALS}
        self.engines = [RequestSeries(families, reasons, (model_name, str(index))) for index in engines]
        self._stays: list[dict[str, Histogram]] = []
        if read_stats is not None:
            self._registry.register(_EngineSeries(read_stats, model_name))
            if shape.kv_blocks:
                stays = {field: self._histogram(name, text, RESIDENCY) for field, (name, text) in BLOCK_STAYS.items()}
                self._stays = [{f: h.labels(model_name, str(index)) for f, h in stays.items()} for index in engines]

    def saw_stats(self, engine: int, stats: EngineStats) -> None:
        """An engine told its statistics: what their lists tell is counted once."""
        series = self.engines[engine]
        for size in stats.step_tokens:
            series.step_tokens.observe(size)
        if self._stays:
            for field, histogram in self._stays[engine].items():
                for seconds in getattr(stats, field):
                    histogram.observe(seconds)

    def refused(self, reason: str) -> None:
        """Count one call that got no work done: `reason` is one of `REFUSALS`."""
        self._refusals[reason].inc()

    def cache_config(self, settings: Sequence[Mapping[str, Any]]) -> None:
        """Publish each engine's cache settings as labels of a gauge that is always 1."""
        names = (*settings[0], "engine")
        gauge = Gauge("turret:cache_config_info", "Settings of the KV cache.", names, registry=self._registry)
        for index, values in enumerate(settings):
            gauge.labels(*map(str, values.values()), str(index)).set(1)

    def expose(self) -> bytes:
        """All series in Prometheus text format 0.0.4."""
        text = generate_latest(self._registry)
        return text if self._compat is None else text + _under_other_names(text, self._compat)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"turret:{name}", text, LABELS, buckets=buckets, registry=self._registry)


def _under_other_names(text: bytes, prefix: str) -> bytes:
    """The series of turret again under another product's prefix, and some of them under names that were given up there
    but that older dashboards still read."""
    new = prefix.encode() + b":"
    lines = [OURS.sub(rb"\1" + new, line) for line in text.split(b"\n") if OURS.match(line)]
    for name, older in OLDER.items():
        own = re.compile(rb"^(# (?:HELP|TYPE) )?" + new + name + rb"(?=_bucket|_sum|_count|_created|[ {])")
        lines += [own.sub(rb"\1" + new + older, line) for line in lines if own.match(line)]
    return b"\n".join(lines) + b"\n"


def _histograms(tokens: tuple[float, ...]) -> Iterable[tuple[str, str, tuple[float, ...]]]:
    """Name, text and buckets of each histogram."""
    return (
        ("request_prompt_tokens", "Prompt tokens of a request.", tokens),
        ("request_prefill_kv_computed_tokens", "Prompt tokens of a request that no cache held.", tokens),
        ("request_generation_tokens", "Tokens a request got.", tokens),
        ("request_max_num_generation_tokens", "Longest of a request's choices, in tokens.", tokens),
        ("request_params_n", "Choices asked for.", N_CHOICES),
        ("request_params_max_tokens", "Limit asked for.", tokens),
        ("time_to_first_token_seconds", "Arrival to first token.", FIRST_TOKEN),
        ("inter_token_latency_seconds", "Between tokens.", INTER_TOKEN),
        ("request_time_per_output_token_seconds", "Mean time between a request's tokens.", INTER_TOKEN),
        ("e2e_request_latency_seconds", "Arrival to last token.", PHASE),
        ("request_queue_time_seconds", "Waiting for the first step.", PHASE),
        ("request_inference_time_seconds", "First step to last token.", PHASE),
        ("request_prefill_time_seconds", "First step to first token.", PHASE),
        ("request_decode_time_seconds", "First token to last token.", PHASE),
        ("iteration_tokens_total", "Tokens per engine step.", STEP_TOKENS),
    )
