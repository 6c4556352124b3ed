"""Guarded calls: an exception inside a plugin names the plugin.

Owns the wrapping of contract methods. Knows nothing of what they do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from turret.errors import TurretError
from turret.plugins.candidate import Candidate
from turret.plugins.faults import one_line, traceback_of
from turret.plugins.kinds import kind_named

__all__ = ["Guarded", "guard", "guarded_call", "unguarded"]

T = TypeVar("T")


def guarded_call(candidate: Candidate, stage: str, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call into a plugin; what it raises becomes a PluginError that names it and `stage`.

    Errors of turret's own tree were raised on purpose and pass, as do those of exhausted memory, which callers treat by
    their type; both get a note that names the plugin.
    """
    try:
        return call(*args, **kwargs)
    except Exception as exc:
        if isinstance(exc, (TurretError, MemoryError)) or type(exc).__name__ == "OutOfMemoryError":
            exc.add_note(f"raised by plugin {candidate.identity} in {stage}")
            raise
        reason = one_line(f"{type(exc).__name__}: {exc}")
        remedy = f"report it to the authors of {candidate.distribution}, or choose another {candidate.kind}"
        raise candidate.broken(stage, reason, remedy, traceback_of(exc)).error() from exc


class Guarded:
    """Stands in for a plugin: its methods run through `guarded_call`, everything else is the plugin's own.

    Wrapped methods are kept in the instance's dictionary, so that a hot method pays one extra call and no look-up.
    `isinstance` sees the plugin's class.
    """

    def __init__(self, plugin: object, candidate: Candidate, prefix: str = "") -> None:
        self.__dict__.update(_guarded_plugin=plugin, _guarded_candidate=candidate, _guarded_prefix=prefix)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.__dict__["_guarded_plugin"])

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        value = getattr(state["_guarded_plugin"], name)
        if name.startswith("_") or not inspect.isroutine(value):
            return value
        candidate: Candidate = state["_guarded_candidate"]
        stage = f"{state['_guarded_prefix']}{name}"
        wrapped: Callable[..., Any] = partial(guarded_call, candidate, stage, value)
        if name in kind_named(candidate.kind).opens and not state["_guarded_prefix"]:
            wrapped = _opening(candidate, stage, value)
        state[name] = wrapped
        return wrapped

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__.pop(name, None)
        setattr(self.__dict__["_guarded_plugin"], name, value)

    def __repr__(self) -> str:
        return f"<guarded {self.__dict__['_guarded_candidate'].identity}>"


def _opening(candidate: Candidate, stage: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose result is called in turn (a parser's session): the result is guarded too."""

    def opened(*args: Any, **kwargs: Any) -> Any:
        result = guarded_call(candidate, stage, method, *args, **kwargs)
        return None if result is None else Guarded(result, candidate, f"{stage}().")

    return opened


def guard(candidate: Candidate, plugin: T) -> T:
    """A stand-in for `plugin` whose every method call names the plugin when it raises."""
    return cast(T, Guarded(plugin, candidate))


def unguarded(plugin: T) -> T:
    """The plugin itself behind a guard (or `plugin`, if there is none)."""
    return cast(T, getattr(plugin, "__dict__", {}).get("_guarded_plugin", plugin))
