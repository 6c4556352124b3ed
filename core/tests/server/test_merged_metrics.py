"""Metrics of several processes as one page."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from turret.messages import EngineStats
from turret.server.merged_metrics import merge_metrics
from turret.server.metrics import MetricsShape, ServerMetrics


def page(tokens: list[int], ended: int, engine: int = 0) -> ServerMetrics:
    metrics = ServerMetrics(MetricsShape("tiny", 512, num_engines=2), None)
    for size in tokens:
        metrics.engines[engine].generation_tokens.observe(size)
    for _ in range(ended):
        metrics.engines[engine].finished("stop")
    return metrics


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_counts_add_up_and_the_shape_is_that_of_one_process() -> None:
    pages = [page([3, 700], 2), page([5], 1), page([7], 4, engine=1)]
    texts = [metrics.expose() for metrics in pages]
    merged = samples(merge_metrics([text.decode() for text in texts]))
    assert {key for key in merged if not key[0].startswith("process_")} == {
        key for key in samples(texts[0]) if not key[0].startswith("process_")
    }
    first, second = (("engine", "0"), ("model_name", "tiny")), (("engine", "1"), ("model_name", "tiny"))
    assert merged["turret:request_generation_tokens_count", first] == 3
    assert merged["turret:request_generation_tokens_sum", first] == 708
    assert merged["turret:request_generation_tokens_count", second] == 1
    stopped = ("finished_reason", "stop")
    assert merged["turret:request_success_total", tuple(sorted((*first, stopped)))] == 3
    assert merged["turret:request_success_total", tuple(sorted((*second, stopped)))] == 4
    created = "turret:request_generation_tokens_created"
    assert merged[created, first] == min(samples(text)[created, first] for text in texts)


def test_engines_are_shown_once_and_settings_stay_one() -> None:
    main = ServerMetrics(MetricsShape("tiny", 512, num_engines=2),
                         lambda: [EngineStats(num_running=3), EngineStats(num_running=1)])
    main.cache_config([{"block_size": 16}, {"block_size": 16}])
    merged = samples(merge_metrics([page([1], 1).expose().decode(), main.expose().decode()]))
    assert merged["turret:num_requests_running", (("engine", "0"), ("model_name", "tiny"))] == 3
    assert merged["turret:cache_config_info", (("block_size", "16"), ("engine", "1"))] == 1


def test_of_a_process_that_is_gone_only_what_it_counted_stays() -> None:
    main = ServerMetrics(MetricsShape("tiny", 512), lambda: [EngineStats(num_running=3, prompt_tokens_total=9)])
    past = merge_metrics([main.expose().decode(), page([4], 1).expose().decode()], past=True)
    left = samples(past)
    assert left["turret:request_generation_tokens_count", (("engine", "0"), ("model_name", "tiny"))] == 1
    assert not any(name.startswith(("turret:num_requests_running", "process_resident")) for name, _ in left)
    assert samples(merge_metrics([past.decode()])) == pytest.approx(left)
