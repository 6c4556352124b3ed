"""The kinds of plugin: their entry-point groups, contract versions and who loads them.

Owns the table of kinds. Knows nothing of what a plugin of any kind does, nor of the contracts' methods, except the
few names that loading and guarding need: the method that answers "can you do this?" and the methods whose results
are themselves called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from turret.errors import PluginError

__all__ = ["GROUPS", "KINDS", "MANIFEST_GROUP", "ROLES", "Kind", "kind_named", "kinds_of_group"]

MANIFEST_GROUP = "turret.manifest"
"""The group whose one entry per distribution says where its manifest lies (`toppkg:turret_plugin.toml`)."""

FRONT, ENGINE, WORKER = "front", "engine", "worker"
ROLES = frozenset({FRONT, ENGINE, WORKER})
"""The parts a process can play. An offline `LLM` plays all three in one process."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of plugin.

    `api` is the MAJOR.MINOR that the core serves natively. `roles` are the processes in which a plugin of this kind
    must be loadable. `asks` is the contract method that answers a query. An `opt_in` kind is off until the user names
    it. Results of `opens` methods are guarded like the plugin itself.
    """

    name: str
    group: str
    api: str
    roles: frozenset[str]
    asks: str = "supports"
    opt_in: bool = False
    opens: frozenset[str] = frozenset()


def _table(*kinds: Kind) -> Mapping[str, Kind]:
    return MappingProxyType({kind.name: kind for kind in kinds})


def _roles(*names: str) -> frozenset[str]:
    return frozenset(names)


KINDS: Mapping[str, Kind] = _table(
    Kind("platform", "turret.platforms", "1.0", _roles(WORKER), asks="probe", opens=_roles("ops")),
    Kind("attention", "turret.attention", "1.0", _roles(WORKER)),
    Kind("quant", "turret.quant", "1.0", _roles(WORKER)),
    Kind("model", "turret.models", "1.0", _roles(WORKER)),
    Kind("tool_parser", "turret.parsers", "1.1", _roles(FRONT), opens=_roles("open")),
    Kind("reasoning_parser", "turret.parsers", "1.2", _roles(FRONT), opens=_roles("open")),
    Kind("op", "turret.ops", "1.0", _roles(WORKER)),
    Kind("structured", "turret.structured", "1.0", _roles(FRONT, WORKER), opens=_roles("open")),
    Kind("loader", "turret.loaders", "1.0", _roles(WORKER)),
    Kind("executor", "turret.executors", "1.0", _roles(ENGINE)),
    Kind("kv_connector", "turret.kv_connectors", "1.0", _roles(ENGINE, WORKER), opt_in=True),
    Kind("speculator", "turret.speculators", "1.0", _roles(WORKER)),
    Kind("policy", "turret.policies", "1.1", _roles(ENGINE)),
    Kind("logits_processor", "turret.logits_processors", "1.0", _roles(WORKER)),
    Kind("endpoint", "turret.endpoints", "1.1", _roles(FRONT), opt_in=True),
    Kind("metrics", "turret.metrics", "1.0", _roles(FRONT)),
    Kind("hook", "turret.hooks", "1.0", _roles(FRONT)),
)

GROUPS: frozenset[str] = frozenset(kind.group for kind in KINDS.values())


def kind_named(name: str) -> Kind:
    """The kind called `name`; raises PluginError that lists the kinds there are."""
    kind = KINDS.get(name)
    if kind is None:
        raise PluginError(f"there is no plugin kind {name!r}; the kinds are {', '.join(KINDS)}", stage="kind")
    return kind


def kinds_of_group(group: str) -> tuple[Kind, ...]:
    """The kinds that register in an entry-point group (two for `turret.parsers`, none for an unknown group)."""
    return tuple(kind for kind in KINDS.values() if kind.group == group)
