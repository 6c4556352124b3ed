"""The frozen plan: what the parent process decided, for every child to load exactly.

Owns the JSON form of plans and lockfiles, the hash of a plugin's files, and the comparison with what is installed.
Imports no plugin and decides nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import importlib_metadata
import msgspec

from turret.errors import ConfigError, PluginError
from turret.plugins.candidate import Candidate
from turret.plugins.registry import Registry

__all__ = ["Plan", "PlanEntry", "core_version", "package_hash", "read_plan", "write_plan"]

SKIPPED = ("__pycache__",)


class PlanEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One plugin, exactly: `hash` covers every file of its top-level package."""

    kind: str
    name: str
    value: str
    distribution: str
    version: str
    hash: str
    options: dict[str, Any] = {}

    @property
    def label(self) -> str:
        return f"{self.kind}:{self.name}"


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plugins of one run (or, as a lockfile, all that may be used), and the turret they were chosen by."""

    turret: str
    entries: tuple[PlanEntry, ...]
    schema: int = 1

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @classmethod
    def from_json(cls, data: bytes | str) -> Plan:
        """Parse; raises PluginError (stage plan)."""
        try:
            plan = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, msgspec.ValidationError) as exc:
            raise PluginError(f"the plugin plan is unreadable: {exc}; remedy: write it anew", stage="plan") from exc
        if plan.schema != 1:
            raise PluginError(f"the plugin plan has schema {plan.schema}, this turret reads 1", stage="plan")
        return plan

    @classmethod
    def of(cls, candidates: Iterable[tuple[Candidate, Mapping[str, Any]]]) -> Plan:
        """Freeze candidates with their options."""
        hashes: dict[str, str] = {}
        entries = []
        for item, options in candidates:
            if item.top_package not in hashes:
                hashes[item.top_package] = package_hash(item.top_package)
            sealed = hashes[item.top_package]
            entry = PlanEntry(item.kind, item.name, item.value, item.distribution, item.version, sealed, dict(options))
            entries.append(entry)
        return cls(core_version(), tuple(entries))

    def distributions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.distribution for entry in self.entries))

    def mismatches(self, registry: Registry) -> list[str]:
        """What of this plan is not installed exactly so, one text a plugin; empty when all agree."""
        found = []
        if self.turret != core_version():
            found.append(f"turret is {core_version()} here, the plan was made by {self.turret}")
        hashes: dict[str, str] = {}
        for entry in self.entries:
            told = _mismatch(entry, registry, hashes)
            if told:
                found.append(f"{entry.label} ({entry.distribution} {entry.version}): {told}")
        return found


def _mismatch(entry: PlanEntry, registry: Registry, hashes: dict[str, str]) -> str:
    offers = [item for item in registry.find(entry.kind, entry.name) if item.distribution == entry.distribution]
    if not offers:
        return "it is not installed here"
    here = offers[0]
    if here.version != entry.version:
        return f"version {here.version} is installed here"
    if here.value != entry.value:
        return f"its entry point is {here.value!r} here, {entry.value!r} in the plan"
    if here.top_package not in hashes:
        hashes[here.top_package] = package_hash(here.top_package)
    if hashes[here.top_package] != entry.hash:
        return f"its files differ (hash {hashes[here.top_package][:12]} here, {entry.hash[:12]} in the plan)"
    return ""


def core_version() -> str:
    """The installed turret's version."""
    try:
        return str(importlib_metadata.version("turret"))
    except importlib_metadata.PackageNotFoundError:
        return "unknown"


def package_hash(top_package: str) -> str:
    """SHA-256 over the relative names and contents of a package's files, found without importing it.

    Covers compiled libraries and data, not caches. The same for a wheel and an editable install of the same files.
    """
    spec = importlib.util.find_spec(top_package) if top_package else None
    if spec is None:
        return ""
    roots = [Path(place) for place in spec.submodule_search_locations or ()]
    digest = hashlib.sha256()
    for root in roots:
        paths = (path for path in root.rglob("*") if path.is_file() and not _skipped(path))
        for path in sorted(paths, key=lambda path: path.relative_to(root).as_posix()):
            _feed(digest, path.relative_to(root).as_posix(), path)
    if not roots and spec.origin:
        _feed(digest, Path(spec.origin).name, Path(spec.origin))
    return digest.hexdigest()


def _skipped(path: Path) -> bool:
    return path.suffix == ".pyc" or any(part in SKIPPED for part in path.parts)


def _feed(digest: hashlib._Hash, name: str, path: Path) -> None:
    """Length-prefixed, so that no two trees give the same bytes."""
    content = path.read_bytes()
    digest.update(f"{len(name)}:{name}:{len(content)}:".encode())
    digest.update(content)


def read_plan(path: Path) -> Plan:
    """Read a plan or lockfile; raises ConfigError when there is none, PluginError when it is unreadable."""
    try:
        return Plan.from_json(path.read_bytes())
    except OSError as exc:
        raise ConfigError(f"cannot read the plugin lockfile {path}: {exc.strerror}", option="--plugins-lock") from exc


def write_plan(plan: Plan, path: Path) -> None:
    path.write_bytes(plan.to_json() + b"\n")
