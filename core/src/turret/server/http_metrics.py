"""What HTTP itself costs: requests by route and status, their sizes and times.

Owns: the series, under the names that the usual instrumentation of FastAPI gives them, and the middleware that counts.
Knows nothing of what requests mean. A route's label is its template, so that no client can make up series.
"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Histogram, Summary
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HttpCounter", "HttpSeries"]

_QUICK = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0,
)  # fmt: skip
_BY_ROUTE = (0.1, 0.5, 1.0)
_UNCOUNTED = frozenset({"/metrics", "/metrics/", "/health", "/ping", "/load", "/version"})
"""Probes and scrapes: they come by the clock and say nothing of the load."""


class HttpSeries:
    """The series of one server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        route = ("handler",)
        self.requests = Counter(
            "http_requests", "Requests answered.", ("method", "status", "handler"), registry=registry
        )
        self.request_size = Summary("http_request_size_bytes", "Bytes of bodies received.", route, registry=registry)
        self.response_size = Summary("http_response_size_bytes", "Bytes of bodies sent.", route, registry=registry)
        self.seconds = Histogram(
            "http_request_duration_seconds", "Time to the end of the answer.", ("method", "handler"),
            buckets=_BY_ROUTE, registry=registry,
        )  # fmt: skip
        self.seconds_highr = Histogram(
            "http_request_duration_highr_seconds", "Time to the end of the answer, of all routes, in finer steps.",
            buckets=_QUICK, registry=registry,
        )  # fmt: skip


class HttpCounter:
    """ASGI middleware that counts."""

    def __init__(self, app: ASGIApp, series: HttpSeries) -> None:
        self._app = app
        self._series = series

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Watch one request go by."""
        if scope["type"] != "http" or scope["path"] in _UNCOUNTED:
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status, sent = 500, 0

        async def counting(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counting)
        finally:
            self._count(scope, status, sent, time.perf_counter() - began)

    def _count(self, scope: Scope, status: int, sent: int, seconds: float) -> None:
        series, method = self._series, scope["method"]
        handler = getattr(scope.get("route"), "path", "none")
        series.requests.labels(method, f"{status // 100}xx", handler).inc()
        length = Headers(scope=scope).get("content-length", "0")
        series.request_size.labels(handler).observe(int(length) if length.isdigit() else 0)
        series.response_size.labels(handler).observe(sent)
        series.seconds.labels(method, handler).observe(seconds)
        series.seconds_highr.observe(seconds)
