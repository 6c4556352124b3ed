"""Exception handlers of the app.

Owns: that every error leaves as the OpenAI error object with its own status, never FastAPI's 422. Knows nothing of
what raised it.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from turret.errors import TurretError
from turret.server.connection import ClientGone
from turret.server.faults import Fault, fault_of, refusal_of

__all__ = ["add_handlers"]

log = logging.getLogger("turret.server")

CLIENT_CLOSED_REQUEST = 499
"""Status for the access log when nobody is left to answer (nginx's number)."""


def add_handlers(app: FastAPI, log_stack: bool = False) -> None:
    """Register the handlers; with `log_stack` (--log-error-stack) each error on purpose leaves its stack in the log."""
    app.add_exception_handler(TurretError, _on_error_told if log_stack else _on_error)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(ClientGone, _on_client_gone)
    app.add_exception_handler(Exception, _on_error)


async def _on_error(request: Request, error: Exception) -> Response:
    """Errors raised on purpose tell their story; others stay private, and uvicorn logs them."""
    state = request.app.state.turret
    if (reason := refusal_of(error, state.lifecycle.draining)) is not None:
        state.metrics.refused(reason)
    return _answer(fault_of(error))


async def _on_error_told(request: Request, error: Exception) -> Response:
    """As `_on_error`, with the stack in the log."""
    log.error("%s %s is answered with an error", request.method, request.url.path, exc_info=error)
    return await _on_error(request, error)


async def _on_http(_: Request, error: Exception) -> Response:
    """Unknown routes and wrong methods."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    response = _answer(Fault(error.status_code, phrase, str(error.detail)))
    response.headers.update(error.headers or {})
    return response


async def _on_validation(_: Request, error: Exception) -> Response:
    """Query parameters that FastAPI checks itself."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    return _answer(Fault(400, HTTPStatus.BAD_REQUEST.phrase, f"{first['msg']} in {param}", param))


async def _on_client_gone(_: Request, __: Exception) -> Response:
    """Nobody reads this; the access log does."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)


def _answer(fault: Fault) -> Response:
    """A fault as an HTTP answer."""
    return Response(fault.body, fault.status, fault.headers, "application/json")
