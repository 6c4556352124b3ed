"""What a starting engine process tells its parent, and how an engine is built.

Owns: the status frames (one JSON object a line), the boot message, the resolution of a factory's dotted path. Knows
nothing of what a factory builds.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import msgspec

from turret.engine.core import EngineCore
from turret.engine.ports import Progress
from turret.errors import ConfigError, EngineError, TurretError, error_of_kind, kind_of_error
from turret.messages import EngineFailure, EngineReady

__all__ = ["Boot", "Factory", "Loading", "StartFailure", "Status", "resolve_factory"]

Factory = Callable[[str, Progress], EngineCore]
"""`build(config_json, progress)`; may raise any `TurretError`."""


class Boot(msgspec.Struct, frozen=True):
    """The one message from parent to child: what to build, where to listen, which directory to clear if orphaned."""

    factory: str
    config: str
    address: str
    directory: str


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """How far a stage of the start is, in [0, 1]."""

    stage: str
    fraction: float


class StartFailure(msgspec.Struct, frozen=True, tag="start_failure"):
    """The start went wrong: `kind` is the name of a class in `turret.errors`."""

    kind: str
    message: str

    @classmethod
    def of(cls, error: Exception) -> StartFailure:
        """From the exception that stopped the start."""
        if isinstance(error, TurretError):
            return cls(kind_of_error(error), str(error))
        return cls(EngineError.__name__, f"the engine failed to start: {type(error).__name__}: {error}")

    def exception(self) -> TurretError:
        """The exception again, in the parent."""
        return error_of_kind(self.kind, self.message)


Status = Loading | StartFailure | EngineReady | EngineFailure


def resolve_factory(path: str) -> Factory:
    """The callable named `package.module:attribute`; raises `ConfigError` when there is none."""
    module_name, colon, attribute = path.partition(":")
    if not colon:
        raise ConfigError(f"an engine factory is named package.module:function, got {path!r}")
    factory = getattr(importlib.import_module(module_name), attribute, None)
    if not callable(factory):
        raise ConfigError(f"{module_name} has no function {attribute!r} to build an engine with")
    return factory  # type: ignore[no-any-return]
