"""The load of the engine as a header of answers, for load balancers that ask (Open Request Cost Aggregation).

Owns: the header's two formats. Knows nothing of who reads it.
"""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response

from turret.engine import Client

__all__ = ["report_load"]

ASKED, TOLD = "endpoint-load-metrics-format", "endpoint-load-metrics"


def report_load(request: Request, response: Response, client: Client) -> Response:
    """`response`, with the load in a header when the request asked for it as TEXT or JSON."""
    form = request.headers.get(ASKED, "").upper()
    if form not in ("TEXT", "JSON"):
        return response
    every = [engine.stats for engine in client.engines]
    load = {
        "kv_cache_usage_perc": sum(stats.kv_cache_usage for stats in every) / len(every),
        "num_requests_waiting": sum(stats.num_waiting for stats in every),
    }
    if form == "JSON":
        response.headers[TOLD] = "JSON " + json.dumps({"named_metrics": load})
    else:
        response.headers[TOLD] = "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in load.items())
    return response
