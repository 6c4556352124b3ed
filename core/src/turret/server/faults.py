"""From an exception to the error object and status that a client sees.

Owns: the one mapping of exceptions to (status, error object). Knows nothing of FastAPI; `turret.server.handlers` plugs
it in. Messages never carry memory addresses or paths of this machine's Python files.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from turret.errors import (
    CapacityError,
    EngineDeadError,
    ModelNotFoundError,
    NotSupportedError,
    QueueFullError,
    RequestError,
    RequestFailedError,
    TurretError,
    UnauthorizedError,
)
from turret.server.wire import ErrorBody, ErrorInfo

__all__ = ["REFUSALS", "BodyError", "BodyTooLargeError", "Fault", "error_event", "fault_of", "refusal_of"]

REFUSALS = ("queue_full", "queue_timeout", "shutting_down", "engine_dead", "invalid", "unknown_model", "unsupported")
"""Why a call gets no work done, for the metric that counts them."""

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
SOURCE_PATH = re.compile(r"(?:/[\w.+-]+)+/([\w.+-]+\.py)")


class BodyError(RequestError):
    """A body that does not parse or does not have the documented shape."""


class BodyTooLargeError(BodyError):
    """A body that nobody should have to hold in memory."""

    status = 413


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer that says no."""

    status: int
    type: str
    message: str
    param: str | None = None
    retry_after: float | None = None

    @property
    def body(self) -> bytes:
        """The error object as JSON."""
        return msgspec.json.encode(ErrorBody(ErrorInfo(self.message, self.type, self.param, self.status)))

    @property
    def headers(self) -> dict[str, str]:
        """Headers that belong to the answer."""
        return {} if self.retry_after is None else {"retry-after": str(max(1, math.ceil(self.retry_after)))}


def fault_of(error: BaseException) -> Fault:
    """The fault that stands for an exception; anything not raised on purpose is a 500 without details."""
    if not isinstance(error, TurretError):
        return Fault(500, "InternalServerError", "the server met an error of its own; its log has the details")
    param = error.param if isinstance(error, RequestError) else None
    retry = error.retry_after if isinstance(error, CapacityError) else None
    return Fault(error.status, _type_of(error), _clean(str(error)), param, retry)


def refusal_of(error: BaseException, draining: bool) -> str | None:
    """Which of `REFUSALS` an exception is; None for a failure."""
    kinds: list[tuple[type[TurretError], str]] = [
        (QueueFullError, "queue_full"),
        (CapacityError, "shutting_down" if draining else "queue_timeout"),
        (ModelNotFoundError, "unknown_model"),
        (RequestError, "invalid"),
        (NotSupportedError, "unsupported"),
        (EngineDeadError, "engine_dead"),
    ]
    return next((reason for kind, reason in kinds if isinstance(error, kind)), None)


def _type_of(error: TurretError) -> str:
    names: list[tuple[type[TurretError], str]] = [
        (BodyTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE.phrase),
        (BodyError, HTTPStatus.BAD_REQUEST.phrase),
        (ModelNotFoundError, "NotFoundError"),
        (UnauthorizedError, "AuthenticationError"),
        (QueueFullError, "RateLimitError"),
        (CapacityError, "ServiceUnavailableError"),
        (RequestError, "BadRequestError"),
        (NotSupportedError, "NotImplementedError"),
        (EngineDeadError, "InternalServerError"),
        (RequestFailedError, "InternalServerError"),
    ]
    return next((name for kind, name in names if isinstance(error, kind)), "InternalServerError")


def _clean(message: str) -> str:
    """A message without memory addresses and source paths."""
    return SOURCE_PATH.sub(r"\1", ADDRESS.sub("", message))


def error_event(error: BaseException) -> bytes:
    """The server-sent event for an error after the stream began."""
    return b"data: " + fault_of(error).body + b"\n\n"
