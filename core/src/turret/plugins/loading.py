"""Tier 3: import a candidate's code and make its instance.

Owns the import (under the guard), the rules for classes, factories and objects, and the checks that need the object.
Knows nothing of selection.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from turret.plugins.candidate import Candidate
from turret.plugins.faults import Fault, FaultError, one_line, traceback_of
from turret.plugins.import_guard import Snapshot
from turret.plugins.versions import ApiTable

__all__ = ["check_object", "import_code", "instantiate", "public_members"]


def import_code(candidate: Candidate) -> object:
    """Import what the entry point names; raises PluginError (stage import), naming what was patched, if anything."""
    module_name, _, attribute = (part.strip() for part in candidate.value.partition(":"))
    before = Snapshot()
    try:
        target: object = importlib.import_module(module_name)
        for name in filter(None, attribute.split(".")):
            target = getattr(target, name)
    except (Exception, SystemExit) as exc:
        raise _import_fault(candidate, exc).error() from exc
    finally:
        changes = before.changes(candidate.top_package)
        for change in changes:
            change.undo()
    if changes:
        names = ", ".join(change.name for change in changes)
        remedy = f"deny it with --plugins-deny {candidate.label} and report it to {candidate.distribution}'s authors"
        raise candidate.broken("import", f"its import changed {names} (undone)", remedy).error()
    return target


def _import_fault(candidate: Candidate, exc: BaseException) -> Fault:
    reason = one_line(f"{type(exc).__name__}: {exc}")
    text = str(exc)
    if "cannot open shared object" in text or "image not found" in text or "DLL load failed" in text:
        remedy = f"install the shared library {text.partition(':')[0]!r} that it links to"
    elif isinstance(exc, ModuleNotFoundError) and exc.name:
        remedy = f"install the module {exc.name!r}, or reinstall {candidate.distribution}"
    else:
        remedy = f"reinstall {candidate.distribution}, or deny it with --plugins-deny {candidate.label}"
    return candidate.broken("import", reason, remedy, traceback_of(exc))


def instantiate(candidate: Candidate, target: object, options: Mapping[str, Any]) -> object:
    """Make the plugin of what the entry point names; raises PluginError (stage create).

    A class or a function is called: with `options` if its first parameter has that name, else without arguments.
    Anything else is the plugin itself.
    """
    factory: Callable[..., object] | None = _factory(target)
    if factory is None:
        if options:
            raise candidate.broken("create", "it takes no options", "remove its --plugin-config").error()
        return target
    try:
        parameters = list(inspect.signature(factory).parameters)
        if parameters and parameters[0] == "options":
            return factory(options)
        if options:
            raise candidate.broken("create", "it takes no options", "remove its --plugin-config").error()
        return factory()
    except FaultError:
        raise
    except (Exception, SystemExit) as exc:
        reason = one_line(f"{type(exc).__name__}: {exc}")
        remedy = f"check its --plugin-config, or deny it with --plugins-deny {candidate.label}"
        raise candidate.broken("create", reason, remedy, traceback_of(exc)).error() from exc


def _factory(target: object) -> Callable[..., object] | None:
    """What to call for an instance, if the target is not the instance itself."""
    return target if inspect.isclass(target) or inspect.isroutine(target) else None


def public_members(contract: type) -> frozenset[str]:
    """The public names that a Protocol asks for, inherited ones included."""
    names: set[str] = set()
    for part in contract.__mro__:
        if getattr(part, "_is_protocol", False):
            names.update(vars(part), vars(part).get("__annotations__", {}))
    return frozenset(name for name in names if not name.startswith("_"))


def check_object(candidate: Candidate, plugin: object, api: ApiTable, contract: type | None) -> None:
    """Hold the object against its promises: version, kind, declared capabilities, members of the contract.

    Raises PluginError (stage api or contract).
    """
    remedy = f"report it to the authors of {candidate.distribution}, or choose another {candidate.kind}"
    if candidate.provided is None:
        _check_unannounced(candidate, plugin, api)
    said = getattr(plugin, "capabilities", None)
    if candidate.provided is not None and isinstance(said, Mapping):
        declared = candidate.provided.capabilities
        lies = [key for key in declared if key in said and _listed(said[key]) != _listed(declared[key])]
        if lies:
            told = ", ".join(f"{key}: manifest {declared[key]!r}, object {said[key]!r}" for key in lies)
            raise candidate.broken("contract", f"the manifest does not tell the truth about {told}", remedy).error()
    if contract is not None:
        lacking = sorted(name for name in public_members(contract) if not hasattr(plugin, name))
        if lacking:
            reason = f"{contract.__name__} asks for {', '.join(lacking)}, which it lacks"
            raise candidate.broken("contract", reason, remedy).error()


def _check_unannounced(candidate: Candidate, plugin: object, api: ApiTable) -> None:
    """A plugin without a manifest tells its API version, and where the group holds several kinds its kind, itself."""
    version = getattr(plugin, "api", None)
    if not isinstance(version, str):
        remedy = 'add `api = "1.0"` to the object, or ship a manifest'
        raise candidate.broken("api", "it has neither a manifest nor an `api` attribute", remedy).error()
    match = api.match(candidate.kind, version)
    if not match.ok:
        raise candidate.broken("api", match.reason, match.remedy).error()
    kind = getattr(plugin, "kind", candidate.kind)
    if kind != candidate.kind:
        raise candidate.broken("contract", f"it is of kind {kind}, not {candidate.kind}", "nothing to do").error()


def _listed(value: object) -> object:
    """TOML knows lists only; an object may hold tuples or sets."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value
