"""Metrics that dashboards read: they are there at zero from the start, and count what happened."""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

KNOWN = Path(__file__).parent / "data" / "vllm_metrics.tsv"
"""Every metric that vLLM documents."""
OLDER = {
    "gpu_cache_usage_perc": "kv_cache_usage_perc", "time_per_output_token_seconds": "inter_token_latency_seconds",
}  # fmt: skip
BODY = {"prompt": "Hello", "max_tokens": 5}


def families(running):
    text = httpx.get(f"{running.url}/metrics").text
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(running, name, **labels):
    """Sum of the samples of that name with those labels."""
    wanted = labels.items()
    samples = [s for f in families(running).values() for s in f.samples if s.name == name]
    found = [s.value for s in samples if wanted <= s.labels.items()]
    assert found, f"there is no {name} with {labels}"
    return sum(found)


@dataclass(frozen=True)
class Known:
    """One line of the table; `shown` is empty for what every server shows under both names."""

    name: str
    kind: str
    labels: str = ""
    shown: str = ""


def known() -> list[Known]:
    lines = KNOWN.read_text().splitlines()
    return [Known(*line.split("\t")) for line in lines if not line.startswith("#")]


@pytest.fixture(scope="module")
def at_zero(serve):
    """What a server shows before anything was asked of it, by name; with and without the watch on KV blocks."""
    with serve(metrics_compat="vllm", kv_cache_metrics=True, parts={"cache_facts": ({"block_size": 8},)}) as watched:
        found = families(watched)
    with serve() as plain:
        return found, families(plain)


@pytest.mark.parametrize("metric", known(), ids=lambda metric: metric.name)
def test_every_metric_of_vllm_is_there_at_zero_or_absent_for_a_reason(at_zero, metric):
    watched, plain = at_zero
    if metric.shown.startswith("absent: "):
        assert f"vllm:{metric.name}" not in watched
        return
    assert (f"turret:{metric.name}" in watched) == (metric.shown != "vllm only")
    assert (f"turret:{metric.name}" in plain) == (metric.shown not in ("vllm only", "--kv-cache-metrics", "one"))
    family = watched[f"vllm:{metric.name}"]
    assert family.type == metric.kind and family.documentation
    samples = [s for s in family.samples if "_created" not in s.name]
    ones = 1 if metric.shown == "one" or metric.name == "engine_sleep_state" else 0
    assert samples and sum(s.value for s in samples) == ones
    if metric.labels:
        label, values = metric.labels.split("=")
        assert {s.labels[label] for s in samples} == set(values.split(","))
    usual = {"no model": set(), "one": {"engine"}}.get(metric.shown, {"model_name", "engine"})
    assert all(usual <= s.labels.keys() for s in samples)


def test_prompt_tokens_are_told_by_where_they_came_from(serve):
    with serve() as running:
        for _ in range(2):
            httpx.post(f"{running.url}/v1/completions", json={**BODY, "prompt": "x" * 40})
        by_source = {source: value(running, "turret:prompt_tokens_by_source_total", source=source)
                     for source in ("local_compute", "local_cache_hit", "external_kv_transfer")}  # fmt: skip
        assert by_source == {"local_compute": 40 + 8, "local_cache_hit": 32, "external_kv_transfer": 0}
        assert sum(by_source.values()) == value(running, "turret:prompt_tokens_total")


def test_the_other_names_are_given_only_when_asked_for(serve, tiny):
    assert not any(name.startswith("vllm") for name in families(tiny))
    with serve(metrics_compat="vllm", parts={"model_names": ("turret:odd",)}) as running:
        httpx.post(f"{running.url}/v1/completions", json=BODY)
        found = families(running)
        for older, name in OLDER.items():
            older_values, values = ([s.value for s in found[f"vllm:{n}"].samples] for n in (older, name))
            assert older_values == values
        names = {s.labels["model_name"] for s in found["vllm:prompt_tokens"].samples}
        assert names == {"turret:odd"}, "only names of metrics change"


def test_phases_and_sizes_of_requests(serve):
    with serve({"step_seconds": 0.01}) as running:
        prompt = {**BODY, "prompt": "x" * 40}
        for _ in range(2):
            httpx.post(f"{running.url}/v1/completions", json=prompt)
        assert value(running, "turret:request_prefill_kv_computed_tokens_sum") == 40 + 8
        assert value(running, "turret:prompt_tokens_cached_total") == 32
        phases = {p: value(running, f"turret:request_{p}_time_seconds_sum") for p in ("prefill", "decode", "inference")}
        assert phases["decode"] >= 1.5 * 4 * 0.01 and phases["prefill"] >= 1.5 * 0.01
        assert phases["inference"] == pytest.approx(phases["prefill"] + phases["decode"], abs=0.05)
        whole = value(running, "turret:e2e_request_latency_seconds_sum")
        queue = value(running, "turret:request_queue_time_seconds_sum")
        assert whole == pytest.approx(queue + phases["inference"], abs=0.05)
        assert value(running, "turret:iteration_tokens_total_count") >= 10


def test_preemptions_and_a_cache_in_use(serve, until):
    tight = {"num_blocks": 12, "step_seconds": 0.005}
    with serve(tight) as running, concurrent.futures.ThreadPoolExecutor() as pool:
        body = {"prompt": "x" * 20, "max_tokens": 100}
        calls = [pool.submit(httpx.post, f"{running.url}/v1/completions", json=body, timeout=60) for _ in range(3)]
        until(lambda: value(running, "turret:kv_cache_usage_perc") > 0.5)
        assert [call.result(60).status_code for call in calls] == [200] * 3
        assert value(running, "turret:num_preemptions_total") > 0
        assert value(running, "turret:kv_cache_usage_perc") == 0


@pytest.mark.parametrize(
    ("body", "reason"),
    [({"prompt": ""}, "invalid"), ({**BODY, "model": "none"}, "unknown_model"), ({**BODY, "n": 0}, "invalid")],
)
def test_refusals_are_counted(serve, body, reason):
    with serve() as running:
        assert value(running, "turret:requests_refused_total") == 0
        httpx.post(f"{running.url}/v1/completions", json=body)
        assert value(running, "turret:requests_refused_total", reason=reason) == 1
        assert value(running, "turret:requests_refused_total") == 1


def test_a_full_queue_is_counted(serve, until):
    with (
        serve({"step_seconds": 0.05, "max_num_seqs": 1}, max_queue_requests=1) as running,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        calls = [pool.submit(httpx.post, f"{running.url}/v1/completions", json=BODY, timeout=60) for _ in range(4)]
        refused = sum(call.result(60).status_code == 429 for call in calls)
        assert refused >= 1
        assert value(running, "turret:requests_refused_total", reason="queue_full") == refused
        assert value(running, "http_requests_total", status="4xx", handler="/v1/completions") == refused


def test_http_requests_by_route(serve):
    with serve() as running:
        httpx.post(f"{running.url}/v1/completions", json=BODY)
        httpx.post(f"{running.url}/v1/completions", json={**BODY, "stream": True})
        for path in ("/made/up", "/made/up/too", "/health", "/metrics"):
            httpx.get(running.url + path)
        route = {"handler": "/v1/completions", "method": "POST"}
        assert value(running, "http_requests_total", status="2xx", **route) == 2
        assert value(running, "http_requests_total", status="4xx", handler="none") == 2
        assert value(running, "http_request_duration_seconds_count", **route) == 2
        assert value(running, "http_request_duration_highr_seconds_count") == 4
        assert value(running, "http_request_size_bytes_sum", handler="/v1/completions") > 2 * 30
        assert value(running, "http_response_size_bytes_sum", handler="/v1/completions") > 1000
        assert value(running, "process_resident_memory_bytes") > 1 << 20
