"""The one exception tree of turret.

Owns: every exception class that crosses a room. Knows nothing of the rest of turret.

Each class says who must act: the client (`RequestError`), the operator (`ConfigError`, `PluginError`, `LoadError`)
or nobody but us (`EngineError`). `status` is the HTTP status the server answers with; it lives here so that offline
and online callers agree on what a fault is.
"""

from __future__ import annotations

__all__ = [
    "CapacityError",
    "ConfigError",
    "EngineDeadError",
    "EngineError",
    "LoadError",
    "ModelNotFoundError",
    "NotSupportedError",
    "PluginError",
    "QueueFullError",
    "RequestError",
    "RequestFailedError",
    "TurretError",
    "UnauthorizedError",
    "error_of_kind",
    "kind_of_error",
]


class TurretError(Exception):
    """Root of all errors that turret raises on purpose."""

    status: int = 500


class RequestError(TurretError, ValueError):
    """The client's request is wrong; nothing was done.

    `param` is the field at fault, when one is known (as in the OpenAI error object).
    """

    status = 400

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ModelNotFoundError(RequestError):
    """The request names a model that this server does not serve."""

    status = 404


class UnauthorizedError(RequestError):
    """The server asks for a key, and the call carries none that it knows."""

    status = 401


class CapacityError(RequestError):
    """The server is full or draining; the same request may succeed after `retry_after` seconds."""

    status = 503

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueFullError(CapacityError):
    """More waits already than the operator allows; nothing was done."""

    status = 429


class NotSupportedError(TurretError):
    """What was asked for exists as an idea but not here; the message names what to do instead."""

    status = 501


class ConfigError(TurretError, ValueError):
    """An option is unknown, out of range or contradicts another; `option` is its name on the command line."""

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


class LoadError(TurretError):
    """A model's files are missing, broken or do not fit; the message names the file and, where known, the tensor."""


class PluginError(TurretError):
    """A plugin cannot be used. The message names distribution, version, stage and remedy on one line.

    `plugin` is the qualified name (`attention:flashinfer`) and `stage` where it broke, when they are known.
    """

    def __init__(self, message: str, *, plugin: str = "", stage: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin
        self.stage = stage


class EngineError(TurretError):
    """The engine met a fault of its own."""


class EngineDeadError(EngineError):
    """The engine (or a worker it needs) is gone; every open request gets this."""

    status = 503


class RequestFailedError(EngineError):
    """One request failed inside the engine; the others go on."""


def kind_of_error(error: TurretError) -> str:
    """The name by which an error crosses to another process: the nearest class that is listed here."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in __all__)


def error_of_kind(kind: str, message: str) -> TurretError:
    """The error again, on the other side; `EngineError` for a kind that is not listed here."""
    found = globals().get(kind) if kind in __all__ else None
    return found(message) if isinstance(found, type) and issubclass(found, TurretError) else EngineError(message)
