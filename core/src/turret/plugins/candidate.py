"""Candidate: one thing a distribution offers, as far as metadata and manifest tell.

Owns the identity of a plugin and the states it goes through. Knows nothing of selection.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from turret.plugins.faults import Fault
from turret.plugins.kinds import kind_named
from turret.plugins.manifest import Provided

__all__ = ["Candidate", "State"]


class State(StrEnum):
    """How far a candidate has come, or where it stopped."""

    DISCOVERED = "discovered"
    BLOCKED = "blocked"
    INCOMPATIBLE = "incompatible"
    INELIGIBLE = "ineligible"
    SELECTED = "selected"
    ACTIVE = "active"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plugin known from metadata; `provided` is None when its distribution ships no manifest.

    `value` is the entry point's `module:attribute`. `fault` is set when metadata and manifest already show it broken.
    """

    kind: str
    name: str
    value: str
    distribution: str
    version: str
    provided: Provided | None = None
    fault: Fault | None = None

    @property
    def label(self) -> str:
        """The qualified name that users write: `attention:flashinfer`."""
        return f"{self.kind}:{self.name}"

    @property
    def id(self) -> tuple[str, str, str]:
        """What tells two candidates apart."""
        return (self.kind, self.name, self.distribution)

    @property
    def identity(self) -> str:
        return f"{self.label} ({self.distribution} {self.version})"

    @property
    def top_package(self) -> str:
        return self.value.partition(":")[0].partition(".")[0].strip()

    @property
    def standing(self) -> str:
        """Its class for ranking; without a manifest it counts as generic."""
        return self.provided.standing if self.provided else "generic"

    @property
    def covers_any(self) -> bool:
        """Whether it serves names of its kind other than its own."""
        return bool(self.provided and self.provided.covers_any)

    @property
    def processes(self) -> frozenset[str]:
        """The processes it may be loaded in; those its kind needs when it does not say."""
        if self.provided and self.provided.processes:
            return frozenset(self.provided.processes)
        return kind_named(self.kind).roles

    def broken(self, stage: str, reason: str, remedy: str, traceback: str = "") -> Fault:
        """A fault of this candidate."""
        return Fault(self.label, self.distribution, self.version, stage, reason, remedy, traceback)
