"""prometheus-client reads /metrics."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families


def test_every_family_parses(demo):
    httpx.post(f"{demo}/v1/completions", json={"prompt": "x", "max_tokens": 2}, timeout=60)
    families = {f.name: f for f in text_string_to_metric_families(httpx.get(f"{demo}/metrics").text)}
    assert families["turret:generation_tokens"].type == "counter"
    assert families["turret:time_to_first_token_seconds"].type == "histogram"
    assert all(f.documentation for f in families.values() if f.samples)
