"""The application: routes, handlers and middleware put together.

Owns: `create_app`. Knows nothing of sockets or processes; loads neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from turret.config import Config
from turret.server.auth import ApiKeyGuard
from turret.server.endpoints import endpoint_routes
from turret.server.handlers import add_handlers
from turret.server.http_metrics import HttpCounter
from turret.server.middleware import add_named_middleware
from turret.server.openapi import add_openapi
from turret.server.parts import ServerParts
from turret.server.request_ids import RequestIdEcho
from turret.server.routes.chat import chat_routes
from turret.server.routes.completions import completions_routes
from turret.server.routes.development import development_routes
from turret.server.routes.models import models_routes
from turret.server.routes.operations import operations_routes
from turret.server.routes.tokenize import tokenize_routes
from turret.server.routes.tokens import tokens_routes
from turret.server.state import ServerState, build_state
from turret.server.wire import (
    AbortRequest,
    ChatCompletion,
    ChatRequest,
    Completion,
    CompletionRequest,
    DetokenizeRequest,
    ErrorBody,
    GenerateRequest,
    TokenAnswer,
    TokenizeRequest,
)

__all__ = ["create_app", "state_of"]

STRUCTS: list[type] = [
    ChatRequest, ChatCompletion, CompletionRequest, Completion, TokenizeRequest, DetokenizeRequest, GenerateRequest,
    TokenAnswer, AbortRequest,
]  # fmt: skip


def create_app(parts: ServerParts, config: Config) -> FastAPI:
    """The app that serves `parts`; its state (metrics, lifecycle) is at `app.state.turret`."""
    state = build_state(parts, config)
    docs = not config.server.disable_fastapi_docs
    app = FastAPI(
        title="turret",
        version=version("turret"),
        description="OpenAI-compatible serving of large language models",
        openapi_url="/openapi.json" if docs else None,
        docs_url="/docs" if docs else None,
        redoc_url="/redoc" if docs else None,
    )
    app.state.turret = state
    for router in _routers(config):
        app.include_router(router(state))
    for endpoint in parts.endpoints:
        app.include_router(endpoint_routes(state, endpoint))
    add_handlers(app, config.observability.log_error_stack)
    add_openapi(app, STRUCTS, ErrorBody)
    _add_middleware(app, state)
    return app


def _routers(config: Config) -> list[Callable[[ServerState], APIRouter]]:
    """The routers that the options ask for."""
    server = config.server
    routers: list[Callable[[ServerState], APIRouter]] = [models_routes, tokens_routes, operations_routes]
    if not server.tokens_only:
        routers += [completions_routes, chat_routes, tokenize_routes]
    if server.server_dev_mode:
        routers.append(development_routes)
    return routers


def state_of(app: FastAPI) -> ServerState:
    """The state `create_app` made."""
    state = app.state.turret
    assert isinstance(state, ServerState)
    return state


def _add_middleware(app: FastAPI, state: ServerState) -> None:
    """Outermost last: CORS answers preflights before keys are asked for, and even a refusal echoes its request id. The
    operator's own sees everything first."""
    server = state.config.server
    if server.api_key:
        app.add_middleware(ApiKeyGuard, keys=server.api_key)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=server.allowed_origins,
        allow_credentials=server.allow_credentials,
        allow_methods=server.allowed_methods,
        allow_headers=server.allowed_headers,
    )
    app.add_middleware(HttpCounter, series=state.metrics.http)
    if server.enable_request_id_headers:
        app.add_middleware(RequestIdEcho)
    add_named_middleware(app, server.middleware)
