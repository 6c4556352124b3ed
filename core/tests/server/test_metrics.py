"""Metrics that dashboards read: they are there at zero from the start, and count what happened."""

from __future__ import annotations

import concurrent.futures

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

GAUGES = [
    "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "engine_sleep_state",
    "num_requests_waiting_by_reason",
]  # fmt: skip
COUNTERS = [
    "prefix_cache_queries", "prefix_cache_hits", "external_prefix_cache_queries", "external_prefix_cache_hits",
    "mm_cache_queries", "mm_cache_hits", "num_preemptions", "prompt_tokens", "generation_tokens",
    "prompt_tokens_cached", "request_success", "corrupted_requests",
]  # fmt: skip
HISTOGRAMS = [
    "iteration_tokens_total", "request_prompt_tokens", "request_generation_tokens",
    "request_max_num_generation_tokens", "request_params_n", "request_params_max_tokens",
    "request_prefill_kv_computed_tokens", "time_to_first_token_seconds", "inter_token_latency_seconds",
    "request_time_per_output_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
    "request_inference_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
]  # fmt: skip
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


@pytest.mark.parametrize("prefix", ["turret", "vllm"])
def test_every_name_is_there_at_zero(serve, prefix):
    with serve(metrics_compat="vllm") as running:
        found = families(running)
    kinds = {**dict.fromkeys(GAUGES, "gauge"), **dict.fromkeys(COUNTERS, "counter"),
             **dict.fromkeys(HISTOGRAMS, "histogram")}  # fmt: skip
    for name, kind in kinds.items():
        family = found[f"{prefix}:{name}"]
        assert family.type == kind and family.documentation
        values = [s.value for s in family.samples if "_created" not in s.name]
        assert values and sum(values) == (name == "engine_sleep_state"), name
        assert all({"model_name", "engine"} <= s.labels.keys() for s in family.samples)
    reasons = {s.labels["finished_reason"] for s in found[f"{prefix}:request_success"].samples}
    assert reasons >= {"stop", "length", "abort", "error"}
    states = {s.labels["sleep_state"]: s.value for s in found[f"{prefix}:engine_sleep_state"].samples}
    assert states == {"awake": 1, "weights_offloaded": 0, "discard_all": 0}


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
