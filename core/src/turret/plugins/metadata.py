"""Tier 1: what is installed, read from distribution metadata alone.

Owns the scan of entry points. Imports no plugin and knows nothing of manifests. A scan is a value: it is taken once per
process and passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import importlib_metadata

__all__ = ["Entry", "Scan", "scan_distributions", "scan_installed"]

PREFIX = "turret."


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry point: `name = value` in `group`, and whose it is."""

    group: str
    name: str
    value: str
    distribution: str
    version: str


@dataclass(frozen=True, slots=True)
class Scan:
    """All `turret.*` entry points of one moment, in a fixed order."""

    entries: tuple[Entry, ...] = ()

    def of_distribution(self, name: str) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.distribution == name)

    def distributions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.distribution for entry in self.entries))


def _entries(dist: importlib_metadata.Distribution) -> Iterator[Entry]:
    # entry_points.txt is read first: only the distributions that have something for us pay for METADATA.
    wanted = [point for point in dist.entry_points if point.group.startswith(PREFIX)]
    if not wanted:
        return
    name = str(dist.metadata["Name"] or "unnamed distribution")
    version = str(dist.metadata["Version"] or "unknown")
    for point in wanted:
        yield Entry(point.group, point.name, point.value, name, version)


def _scan(dists: Iterable[importlib_metadata.Distribution]) -> Scan:
    seen: set[str] = set()
    found: list[Entry] = []
    for dist in dists:
        entries = list(_entries(dist))
        # The first on sys.path shadows the later ones, as it does for imports.
        if entries and entries[0].distribution not in seen:
            seen.add(entries[0].distribution)
            found.extend(entries)
    found.sort(key=lambda entry: (entry.group, entry.name, entry.distribution))
    return Scan(tuple(found))


def scan_installed() -> Scan:
    """Scan every distribution on sys.path."""
    return _scan(importlib_metadata.distributions())


def scan_distributions(names: Iterable[str]) -> Scan:
    """Scan only the distributions named; those that are not installed are left out."""
    dists: list[importlib_metadata.Distribution] = []
    for name in dict.fromkeys(names):
        dists.extend(list(importlib_metadata.distributions(name=name))[:1])
    return _scan(dists)
