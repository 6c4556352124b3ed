"""Notice a plugin that patches the core or the environment while it is imported.

Owns the comparison of turret's modules and os.environ before and after an import. It detects and undoes plain
assignments; it is no sandbox, and code that wants to hide can.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import FunctionType, ModuleType

__all__ = ["Snapshot", "Tampering"]

CORE = "turret"
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Tampering:
    """One change: the name that was changed (`turret.errors.LoadError`, `os.environ['X']`) and how to undo it."""

    name: str
    owner: object
    attribute: str
    before: object

    def undo(self) -> None:
        if isinstance(self.owner, type(os.environ)):
            if isinstance(self.before, str):
                self.owner[self.attribute] = self.before
            else:
                self.owner.pop(self.attribute, None)
        elif self.before is _ABSENT:
            delattr(self.owner, self.attribute)
        else:
            setattr(self.owner, self.attribute, self.before)


class Snapshot:
    """The core's module and class attributes, function bodies and os.environ at one moment."""

    def __init__(self) -> None:
        self._attributes = {id(owner): (owner, dict(_visible(owner))) for owner in _owners()}
        self._environ = dict(os.environ)

    def changes(self, plugin_package: str) -> list[Tampering]:
        """What differs now. Objects of `plugin_package` inside core modules count, even in modules loaded since.

        The core's own defaults are plugins too, but what they do to the core is no tampering.
        """
        if plugin_package == CORE:
            return []
        found: list[Tampering] = []
        for owner in _owners():
            known = self._attributes.get(id(owner))
            before = known[1] if known else None
            now = dict(_visible(owner))
            for attribute in dict.fromkeys((*(before or {}), *now)):
                old = before.get(attribute, _ABSENT) if before is not None else None
                new = now.get(attribute, _ABSENT)
                if before is None:
                    if _belongs_to(new, plugin_package):
                        found.append(Tampering(f"{_title(owner)}.{attribute}", owner, attribute, _ABSENT))
                elif new is not old and not _ordinary(owner, attribute, new):
                    found.append(Tampering(f"{_title(owner)}.{attribute}", owner, attribute, old))
        return found + self._environ_changes()

    def _environ_changes(self) -> list[Tampering]:
        names = sorted({*self._environ, *os.environ})
        return [
            Tampering(f"os.environ[{name!r}]", os.environ, name, self._environ.get(name, _ABSENT))
            for name in names
            if self._environ.get(name) != os.environ.get(name)
        ]


def _owners() -> list[object]:
    """Everything of the core whose attributes are watched: loaded modules, their classes, their functions' bodies."""
    owners: list[object] = []
    for name, module in list(sys.modules.items()):
        if (name == CORE or name.startswith(f"{CORE}.")) and isinstance(module, ModuleType):
            owners.append(module)
            own = [value for value in vars(module).values() if getattr(value, "__module__", None) == name]
            owners.extend(value for value in own if isinstance(value, (type, FunctionType)))
    return owners


def _visible(owner: object) -> dict[str, object]:
    if isinstance(owner, FunctionType):
        return {"__code__": owner.__code__, "__defaults__": owner.__defaults__}
    return {name: value for name, value in vars(owner).items() if not _machinery(name)}


def _machinery(name: str) -> bool:
    """Names that Python itself writes; `_abc_` and protocol caches appear on classes when they are first used."""
    dunder = name.startswith("__") and name.endswith("__")
    return (dunder and name not in ("__init__", "__call__", "__getattr__")) or name.startswith("_abc_") or name in (
        "_is_protocol",
        "_is_runtime_protocol",
    )


def _ordinary(owner: object, attribute: str, value: object) -> bool:
    """Importing a submodule sets it on its package: no patch."""
    if not isinstance(owner, ModuleType):
        return False
    return isinstance(value, ModuleType) and value.__name__ == f"{owner.__name__}.{attribute}"


def _belongs_to(value: object, package: str) -> bool:
    if not isinstance(value, (type, FunctionType)):
        return False
    return value.__module__ == package or value.__module__.startswith(f"{package}.")


def _title(owner: object) -> str:
    if isinstance(owner, ModuleType):
        return owner.__name__
    return f"{getattr(owner, '__module__', '')}.{getattr(owner, '__qualname__', '')}"
