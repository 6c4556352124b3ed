"""Lifecycle hooks: many listeners, each of them told, none able to stop the others.

Owns the hook specifications and the calls. Built on pluggy; knows nothing of what listeners do. Hooks run per request
at most, never per token or layer.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pluggy

from turret.plugins.candidate import Candidate
from turret.plugins.events import (
    CliOption,
    ConfigResolved,
    MetricsSnapshot,
    ModelLoaded,
    RequestFinished,
    RequestFirstToken,
    RequestReceived,
    Shutdown,
)
from turret.plugins.faults import one_line

__all__ = ["HOOKS", "HookSpecs", "Hooks", "hookimpl"]

PROJECT = "turret"
MAX_ERRORS = 3

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

logger = logging.getLogger("turret.plugins")


class HookSpecs:
    """What a listener may implement. Every hook takes one value, `event`."""

    @hookspec
    def add_cli_options(self) -> list[CliOption]:
        """Options to add to `turret serve`; the one hook that returns something and takes nothing."""
        raise NotImplementedError

    @hookspec
    def config_resolved(self, event: ConfigResolved) -> None:
        """The configuration is settled and cannot be changed any more."""

    @hookspec
    def model_loaded(self, event: ModelLoaded) -> None:
        """The model is ready to run."""

    @hookspec
    def request_received(self, event: RequestReceived) -> None:
        """A request was accepted."""

    @hookspec
    def request_first_token(self, event: RequestFirstToken) -> None:
        """A request's first token is there."""

    @hookspec
    def request_finished(self, event: RequestFinished) -> None:
        """A request ended, in whatever way."""

    @hookspec
    def metrics(self, event: MetricsSnapshot) -> None:
        """Values of all metrics, about once a second while the server works."""

    @hookspec
    def shutdown(self, event: Shutdown) -> None:
        """The process is about to end."""


HOOKS = frozenset(name for name in vars(HookSpecs) if not name.startswith("_"))


class Hooks:
    """The registered listeners. One that raises is logged; after `MAX_ERRORS` errors of one hook in a row it is off."""

    def __init__(self, listeners: Iterable[tuple[Candidate, object]] = ()) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(HookSpecs)
        self._listeners: dict[str, tuple[Candidate, object]] = {}
        self._errors: Counter[tuple[str, str]] = Counter()
        self._callers: dict[tuple[str, str], pluggy.HookCaller] = {}
        for candidate, listener in listeners:
            self._register(candidate, listener)

    def _register(self, candidate: Candidate, listener: object) -> None:
        try:
            self._manager.register(listener, name=candidate.label)
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as exc:
            if self._manager.has_plugin(candidate.label):
                self._manager.unregister(name=candidate.label)
            fault = candidate.broken("register", str(exc), f"report it to the authors of {candidate.distribution}")
            logger.warning("%s (skipped)", fault.line())
            return
        self._listeners[candidate.label] = (candidate, listener)

    @property
    def active(self) -> tuple[str, ...]:
        """Labels of the listeners that are still told."""
        return tuple(self._listeners)

    def notify(self, hook: str, event: object) -> None:
        """Tell every listener; never raises on a listener's account."""
        for label in tuple(self._listeners):
            self._call(label, hook, {"event": event})

    def cli_options(self) -> list[tuple[Candidate, CliOption]]:
        """The options that listeners add, with the plugin that adds each."""
        found: list[tuple[Candidate, CliOption]] = []
        for label in tuple(self._listeners):
            candidate = self._listeners[label][0]
            for options in self._call(label, "add_cli_options", {}):
                found.extend((candidate, option) for option in options)
        return found

    def _call(self, label: str, hook: str, arguments: dict[str, Any]) -> list[Any]:
        try:
            results: list[Any] = self._caller(label, hook)(**arguments)
        except Exception as exc:
            self._failed(label, hook, exc)
            return []
        self._errors[label, hook] = 0
        return results

    def _caller(self, label: str, hook: str) -> pluggy.HookCaller:
        """A caller that reaches this listener alone: pluggy stops at the first listener that raises."""
        caller = self._callers.get((label, hook))
        if caller is None:
            others = [other for name, (_, other) in self._listeners.items() if name != label]
            caller = self._callers[label, hook] = self._manager.subset_hook_caller(hook, others)
        return caller

    def _failed(self, label: str, hook: str, exc: Exception) -> None:
        candidate = self._listeners[label][0]
        self._errors[label, hook] += 1
        off = self._errors[label, hook] >= MAX_ERRORS
        remedy = f"report it to the authors of {candidate.distribution}, or use --plugins-deny {label}"
        fault = candidate.broken(hook, one_line(f"{type(exc).__name__}: {exc}"), remedy)
        if off:
            del self._listeners[label]
            self._manager.unregister(name=label)
            self._callers.clear()
            logger.warning("%s (switched off after %d errors in a row)", fault.line(), MAX_ERRORS)
        else:
            logger.warning("%s", fault.line(), exc_info=exc)
