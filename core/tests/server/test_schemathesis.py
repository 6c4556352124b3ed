"""Requests that schemathesis makes of /openapi.json, as the document says and not: none is answered with a 5xx."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode

EXAMPLES = 60
QUIET = settings(
    max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def statuses_of(operation: Any, mode: GenerationMode) -> Counter[int]:
    """How often each status answered the requests made for one operation."""
    seen: Counter[int] = Counter()

    @seed(1)
    @QUIET
    @given(operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        response = case.call(timeout=30)
        seen[response.status_code] += 1
        assert response.status_code < 500 and "Traceback" not in response.text, response.text
        if response.status_code >= 400:
            assert response.json()["error"]["message"]

    check()
    return seen


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_breaks_the_server(serve, mode):
    with serve(enable_tokenizer_info_endpoint=True, server_dev_mode=True) as running:
        schema = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        if mode is GenerationMode.NEGATIVE:  # without a body there is hardly anything to get wrong
            operations = [op for op in operations if list(op.body)]
        statuses = {f"{op.method.upper()} {op.path}": statuses_of(op, mode) for op in operations}
        print(statuses)
        assert len(statuses) >= (7 if mode is GenerationMode.NEGATIVE else 15)
        assert all(seen.total() for seen in statuses.values())
