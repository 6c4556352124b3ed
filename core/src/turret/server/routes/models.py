"""GET /v1/models.

Owns: the cards of what is served. Knows nothing of how.
"""

from __future__ import annotations

import time

from fastapi import APIRouter
from starlette.responses import Response

from turret.errors import ModelNotFoundError
from turret.server.json_answer import as_json
from turret.server.state import ServerState
from turret.server.wire import ModelCard, ModelList

__all__ = ["models_routes"]


def models_routes(state: ServerState) -> APIRouter:
    """The router: one card per served name."""
    router = APIRouter(tags=["models"])
    started = int(time.time())

    def card(name: str) -> ModelCard:
        parts = state.parts
        return ModelCard(id=name, created=started, root=parts.model_root, max_model_len=parts.max_model_len)

    async def list_models() -> Response:
        """What this server serves."""
        return as_json(ModelList(data=[card(name) for name in state.parts.model_names]))

    async def show_model(name: str) -> Response:
        """One card; names may hold slashes."""
        if name not in state.parts.model_names:
            raise ModelNotFoundError(f"the model {name!r} does not exist here", "model")
        return as_json(card(name))

    router.add_api_route("/v1/models", list_models, methods=["GET"], response_class=Response)
    router.add_api_route("/v1/models/{name:path}", show_model, methods=["GET"], response_class=Response)
    return router
