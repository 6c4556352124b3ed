"""Middleware that the operator named by import path.

Owns: loading it and the sentences for what cannot be used. Knows nothing of what it does. Nothing is imported that was
not named.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware

from turret.errors import ConfigError

__all__ = ["add_named_middleware", "load_middleware"]


def load_middleware(paths: Sequence[str]) -> list[Any]:
    """The classes and functions at `package.module.Name` (or `package.module:Name`); raises `ConfigError`."""
    return [_load(path) for path in paths]


def add_named_middleware(app: Starlette, paths: Sequence[str]) -> None:
    """Put each around the app, the last one outermost: classes as ASGI middleware, functions as `f(request, next)`."""
    for found in load_middleware(paths):
        if inspect.isclass(found):
            made: Any = found  # called with the app it stands around
            app.add_middleware(made)
        else:
            app.add_middleware(BaseHTTPMiddleware, dispatch=found)


def _load(path: str) -> Any:
    module, _, name = path.replace(":", ".").rpartition(".")
    if not module or not name:
        raise ConfigError(f"--middleware {path}: name it as package.module.Name", "middleware")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # the module is somebody else's code: anything may go wrong in it
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"--middleware {path} cannot be loaded: {reason}", "middleware") from error
    if not (inspect.isclass(found) or inspect.iscoroutinefunction(found)):
        raise ConfigError(f"--middleware {path} is neither a class nor an async function", "middleware")
    return found
