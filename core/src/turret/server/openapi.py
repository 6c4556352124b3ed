"""The OpenAPI document of routes whose bodies are msgspec structs.

Owns: turning structs into JSON Schema and putting them where /docs looks. Knows nothing of what routes do. FastAPI
never validates these bodies: they are decoded from bytes by `turret.server.bodies`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

__all__ = ["add_openapi", "body_schema"]

REF = "#/components/schemas/{name}"


def body_schema(request: type | None, answer: type | None = None) -> dict[str, Any]:
    """`openapi_extra` of a route that takes `request` and answers with `answer` (or an event stream)."""
    extra: dict[str, Any] = {}
    if request is not None:
        extra["requestBody"] = {"required": True, "content": _json_of(request)}
    if answer is not None:
        extra["responses"] = {"200": {"description": "Success", "content": _json_of(answer)}}
    return extra


def _json_of(model: type) -> dict[str, Any]:
    """The content member of a body that is `model` as JSON."""
    return {"application/json": {"schema": {"$ref": REF.format(name=model.__name__)}}}


def add_openapi(app: FastAPI, models: list[type], error: type) -> None:
    """Give `app` a document that includes `models`; every route may answer with `error`."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build_document(app, models, error)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _build_document(app: FastAPI, models: list[type], error: type) -> dict[str, Any]:
    """The document as FastAPI makes it, with the structs' schemas added."""
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    _, components = msgspec.json.schema_components([*models, error], ref_template=REF)
    made.setdefault("components", {}).setdefault("schemas", {}).update(components)
    failure = {"description": "Error", "content": _json_of(error)}
    for path in made.get("paths", {}).values():
        for operation in path.values():
            if "requestBody" in operation:
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = failure
    return made
