"""The registry: every candidate that metadata and manifests show, by kind and name.

Owns the join of entry points with manifests. Imports no plugin, decides nothing, and is an object that is passed on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from turret.errors import PluginError
from turret.plugins.candidate import Candidate
from turret.plugins.kinds import GROUPS, KINDS, MANIFEST_GROUP, kinds_of_group
from turret.plugins.manifest import Manifest, read_manifest
from turret.plugins.metadata import Entry, Scan

__all__ = ["Registry"]


@dataclass(frozen=True, slots=True)
class Registry:
    """All candidates, sorted by kind, name and distribution; `strays` are entries in groups turret does not know."""

    candidates: tuple[Candidate, ...] = ()
    strays: tuple[Entry, ...] = ()

    @classmethod
    def build(cls, scan: Scan) -> Registry:
        """Join a scan with the manifests it points to."""
        found: list[Candidate] = []
        for distribution in scan.distributions():
            found.extend(_candidates_of(scan.of_distribution(distribution)))
        found.sort(key=lambda item: (item.kind, item.name, item.distribution))
        strays = tuple(entry for entry in scan.entries if entry.group not in GROUPS | {MANIFEST_GROUP})
        return cls(tuple(found), strays)

    def of_kind(self, kind: str) -> tuple[Candidate, ...]:
        return tuple(item for item in self.candidates if item.kind == kind)

    def find(self, kind: str, name: str) -> tuple[Candidate, ...]:
        """Every distribution's offer of this (kind, name)."""
        return tuple(item for item in self.candidates if item.kind == kind and item.name == name)

    def named(self, text: str) -> tuple[Candidate, ...]:
        """Candidates a user may mean by a name, a qualified name or a distribution's name."""
        return tuple(item for item in self.candidates if text in (item.name, item.label, item.distribution))


def _candidates_of(entries: tuple[Entry, ...]) -> list[Candidate]:
    """The candidates of one distribution."""
    pointers = [entry for entry in entries if entry.group == MANIFEST_GROUP]
    offers = [entry for entry in entries if entry.group in GROUPS]
    if not pointers:
        return [_candidate(entry, kind.name) for entry in offers for kind in kinds_of_group(entry.group)]
    try:
        if len(pointers) > 1:
            raise PluginError(f"{len(pointers)} entries in {MANIFEST_GROUP}; one is allowed", stage="manifest")
        manifest = read_manifest(pointers[0])
    except PluginError as exc:
        return [_with_fault(_candidate(entry, kinds_of_group(entry.group)[0].name), str(exc)) for entry in offers]
    return _joined(offers, manifest, pointers[0])


def _candidate(entry: Entry, kind: str) -> Candidate:
    return Candidate(kind, entry.name, entry.value, entry.distribution, entry.version)


def _with_fault(item: Candidate, reason: str) -> Candidate:
    remedy = f"report it to the authors of {item.distribution}, or uninstall it"
    return replace(item, fault=item.broken("manifest", reason, remedy))


def _joined(offers: list[Entry], manifest: Manifest, pointer: Entry) -> list[Candidate]:
    """Match entry points and `[[provides]]` one to one; what one side lacks is a candidate with a fault."""
    found: list[Candidate] = []
    told: set[tuple[str, str]] = set()
    for entry in offers:
        kinds = kinds_of_group(entry.group)
        matches = [(kind.name, manifest.find(kind.name, entry.name)) for kind in kinds]
        provided = [(kind, table) for kind, table in matches if table is not None]
        for kind, table in provided:
            told.add((kind, entry.name))
            found.append(replace(_candidate(entry, kind), provided=table))
        if not provided:
            reason = f"entry point {entry.name!r} in {entry.group} is not in the manifest"
            found.append(_with_fault(_candidate(entry, kinds[0].name), reason))
    for table in manifest.provides:
        for name in table.all_names():
            if (table.kind, name) not in told:
                group = KINDS[table.kind].group
                reason = f"the manifest provides {table.kind}:{name}, but no entry point in {group} does"
                lacking = Candidate(table.kind, name, "", pointer.distribution, pointer.version, table)
                found.append(_with_fault(lacking, reason))
    return found
