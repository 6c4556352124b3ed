"""Tier 2: manifests, read without importing anything of the plugin.

Owns the manifest's model (`turret_plugin.toml`, schema 1), its checks and its location. Knows nothing of what the
capabilities mean: they belong to the kind.
"""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from turret.errors import PluginError
from turret.plugins.kinds import KINDS, ROLES
from turret.plugins.metadata import Entry

__all__ = ["Detect", "Manifest", "Posture", "Provided", "Requires", "manifest_path", "parse_manifest", "read_manifest"]

SCHEMA = 1
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-]*")
HARDWARE = re.compile(r"[a-z0-9_]+(::[A-Za-z0-9_]+)?")

Standing = Literal["specialised", "generic", "reference"]
Status = Literal["stable", "preview", "experimental"]


class Requires(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What must be there before the code is imported: importable modules, hardware as `device` or `device::feature`."""

    modules: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()


class Posture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the plugin does to the outside. A declaration for the reader, not a sandbox."""

    network: bool = False
    files: bool = False
    routes: tuple[str, ...] = ()


class Detect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a platform's hardware shows without any code: files (glob patterns) or environment variables that exist."""

    files: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


class Provided(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[provides]]` table. `names` lists several entries that share everything else."""

    kind: str
    api: str
    name: str = ""
    names: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    requires: Requires = Requires()
    capabilities: dict[str, Any] = {}
    options: dict[str, Any] | None = None
    status: Status = "stable"
    posture: Posture = Posture()
    standing: Standing = msgspec.field(default="generic", name="class")
    covers_any: bool = False
    detect: Detect = Detect()

    def all_names(self) -> tuple[str, ...]:
        return self.names or (self.name,)


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole `turret_plugin.toml`."""

    schema: int
    provides: tuple[Provided, ...]
    summary: str = ""

    def find(self, kind: str, name: str) -> Provided | None:
        for provided in self.provides:
            if provided.kind == kind and name in provided.all_names():
                return provided
        return None


def parse_manifest(text: str) -> Manifest:
    """Parse and check; raises ValueError that says which table is wrong and how."""
    data = tomllib.loads(text)
    if data.get("schema") != SCHEMA:
        raise ValueError(f"schema is {data.get('schema')!r}, this turret reads schema = {SCHEMA}")
    manifest = msgspec.convert(data, Manifest)
    for index, provided in enumerate(manifest.provides):
        try:
            _check(provided)
        except ValueError as exc:
            raise ValueError(f"provides[{index}]: {exc}") from exc
    pairs = [(provided.kind, name) for provided in manifest.provides for name in provided.all_names()]
    twice = sorted({f"{kind}:{name}" for kind, name in pairs if pairs.count((kind, name)) > 1})
    if twice:
        raise ValueError(f"provided more than once: {', '.join(twice)}")
    return manifest


def _check(provided: Provided) -> None:
    if provided.kind not in KINDS:
        raise ValueError(f"unknown kind {provided.kind!r}; the kinds are {', '.join(KINDS)}")
    if bool(provided.name) == bool(provided.names):
        raise ValueError("give either name or names")
    for name in provided.all_names():
        if not NAME.fullmatch(name):
            raise ValueError(f"name {name!r} must be letters, digits, '_' and '-'")
    try:
        SpecifierSet(provided.api)
    except InvalidSpecifier as exc:
        raise ValueError(f'api {provided.api!r} is no version range; write for example ">=1.0,<2"') from exc
    if not provided.api.strip():
        raise ValueError('api must be a version range, for example ">=1.0,<2"')
    strange = sorted(set(provided.processes) - ROLES)
    if strange:
        raise ValueError(f"processes {strange} are none of {sorted(ROLES)}")
    for module in provided.requires.modules:
        # Looking for a submodule would import its parent, and a manifest is judged without importing anything.
        if not module.isidentifier():
            raise ValueError(f"requires.modules: {module!r} must be a top-level module")
    for item in provided.requires.hardware:
        if not HARDWARE.fullmatch(item):
            raise ValueError(f"hardware {item!r} must read device or device::feature")
    if provided.options is not None and provided.options.get("type", "object") != "object":
        raise ValueError("options must be a JSON Schema of type object")


def manifest_path(entry: Entry) -> Path:
    """Where the manifest of a `turret.manifest` entry lies; raises PluginError (stage manifest)."""
    top, _, filename = entry.value.partition(":")
    top, filename = top.strip(), filename.strip()
    # find_spec of a dotted name would import the parent package, and reading a manifest must import nothing.
    if not top.isidentifier() or not filename or "/" in filename or "\\" in filename:
        raise PluginError(f"value {entry.value!r} must read toppackage:turret_plugin.toml", stage="manifest")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise PluginError(f"package {top!r} is not importable", stage="manifest")
    for location in spec.submodule_search_locations:
        path = Path(location) / filename
        if path.is_file():
            return path
    raise PluginError(f"{filename!r} is not in package {top!r}", stage="manifest")


def read_manifest(entry: Entry) -> Manifest:
    """Read the manifest a `turret.manifest` entry points to; raises PluginError (stage manifest)."""
    path = manifest_path(entry)
    try:
        return parse_manifest(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, msgspec.ValidationError) as exc:
        raise PluginError(f"{path.name}: {exc}", stage="manifest") from exc
