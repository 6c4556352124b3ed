"""Health, version, load, metrics.

Owns: the routes that operators and load balancers call. Knows nothing of models.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response

from turret.server.json_answer import as_json
from turret.server.merged_metrics import merge_metrics
from turret.server.state import ServerState

__all__ = ["operations_routes"]


def operations_routes(state: ServerState) -> APIRouter:
    """The router; `/ping` is `/health` under another name."""
    router = APIRouter(tags=["operations"])

    async def health() -> Response:
        """200 while every engine lives and the server takes work, 503 after."""
        ok = state.parts.client.fault is None and not state.lifecycle.draining
        return Response(status_code=200 if ok else 503)

    async def show_version() -> Response:
        """The version of turret."""
        return as_json({"version": version("turret")})

    async def load() -> Response:
        """Calls being answered, when --enable-server-load-tracking is set."""
        counted = state.config.server.enable_server_load_tracking
        return as_json({"server_load": sum(await state.parts.peers.ask("load")) if counted else 0})

    async def metrics() -> Response:
        """Prometheus text format 0.0.4."""
        texts = await state.parts.peers.ask("metrics")
        merged = texts[0] if len(texts) == 1 else await asyncio.to_thread(merge_metrics, texts)
        return Response(merged, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    router.add_api_route("/health", health, methods=["GET"], response_class=Response)
    router.add_api_route("/ping", health, methods=["GET", "POST"], response_class=Response, include_in_schema=False)
    router.add_api_route("/version", show_version, methods=["GET"], response_class=Response)
    router.add_api_route("/load", load, methods=["GET"], response_class=Response)
    router.add_api_route("/metrics", metrics, methods=["GET"], response_class=Response)
    router.add_api_route("/metrics/", metrics, methods=["GET"], response_class=Response, include_in_schema=False)
    return router
