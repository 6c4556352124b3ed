"""Cases: everything the kit checks about one distribution, as values that run.

Owns the list of cases. Knows nothing of what they check: each kind's module does.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from turret.compose.hosts import CONTRACTS
from turret.errors import PluginError
from turret.plugins import Candidate, HostSettings, PluginHost, Policy, Request, unguarded
from turret.plugins.metadata import scan_distributions

__all__ = ["Case", "NotApplicable", "Subject", "cases"]

BUILDERS: Mapping[str, str] = MappingProxyType(
    {
        "attention": "turret.testing.attention",
        "quant": "turret.testing.quant",
        "platform": "turret.testing.platform",
        "op": "turret.testing.ops",
        "model": "turret.testing.models",
        "tool_parser": "turret.testing.parsers",
        "reasoning_parser": "turret.testing.parsers",
        "policy": "turret.testing.policies",
        "endpoint": "turret.testing.endpoints",
        "structured": "turret.testing.structured",
    }
)
"""The module whose `build(subject)` yields a kind's own cases; each loads torch only if its kind computes."""


class NotApplicable(Exception):
    """A case has nothing to check here: a device is absent, no samples are shipped. It is reported, never hidden."""


@dataclass(frozen=True, slots=True)
class Case:
    """One check. `section` is static, contract, numeric, honesty, lifecycle, semantic or end_to_end."""

    plugin: str
    section: str
    name: str
    check: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.plugin}/{self.section}/{self.name}"

    def run(self) -> None:
        """Raises AssertionError or the plugin's own error; under pytest a case that does not apply is skipped."""
        try:
            self.check()
        except NotApplicable as exc:
            import pytest  # a dependency of tests only

            pytest.skip(str(exc))


@dataclass(frozen=True)
class Subject:
    """One plugin under test, and the ways to get at it.

    `siblings` are all sound plugins of the distribution, this one included: what needs a process of its own is checked
    once for all of them, on the first.
    """

    candidate: Candidate
    siblings: tuple[Candidate, ...]

    @property
    def leads(self) -> bool:
        return bool(self.siblings) and self.siblings[0].id == self.candidate.id

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self.candidate.provided.capabilities if self.candidate.provided else {}

    def host(self) -> PluginHost:
        """A host of its own that knows only this distribution, with everything in it turned on."""
        scan = scan_distributions([self.candidate.distribution])
        settings = HostSettings(contracts=CONTRACTS)
        return PluginHost.discover(Policy(enable=(self.candidate.distribution,)), settings, scan=scan)

    def load(self) -> Any:
        """A fresh instance, bare."""
        return unguarded(self.host().load(self.candidate))

    def judged_ok(self, query: object) -> tuple[bool, str]:
        """Whether manifest and plugin agree to serve a query, and the reasons if not."""
        request = Request(self.candidate.kind, query, explicit=self.candidate.label)
        judged = self.host().consider(request).of(self.candidate)
        assert judged is not None
        if judged.fault is not None:
            raise judged.fault.error()
        return judged.verdict.ok, "; ".join(judged.verdict.reasons)

    def samples(self, kind: type) -> list[Any]:
        """The author's samples of one type; raises NotApplicable when the package ships none."""
        name = f"{self.candidate.top_package}.conformance"
        found = importlib.util.find_spec(name)
        samples = [] if found is None else importlib.import_module(name).samples()
        mine = [sample for sample in samples if isinstance(sample, kind) and self._concerns(sample)]
        if not mine:
            raise NotApplicable(f"{name} ships no {kind.__name__} for it: only its author can make them")
        return mine

    def _concerns(self, sample: object) -> bool:
        """Whether a sample is for this plugin, where it says which it is for."""
        parsers = getattr(sample, "parsers", ())
        return not parsers or self.candidate.name in parsers

    def case(self, section: str, name: str, check: Callable[..., None], *args: Any) -> Case:
        return Case(self.candidate.label, section, name, partial(check, *args))


def cases(distribution: str) -> list[Case]:
    """Every case for every plugin of an installed distribution, static ones first."""
    found = PluginHost.discover(scan=scan_distributions([distribution])).registry.candidates
    if not found:
        return [Case(distribution, "static", "installed", partial(_not_installed, distribution))]
    sound = tuple(candidate for candidate in found if candidate.fault is None)
    return [case for candidate in found for case in _cases_of(Subject(candidate, sound))]


def _cases_of(subject: Subject) -> Iterator[Case]:
    from turret.testing import lifecycle, static  # they take their types from this module

    yield from static.build(subject)
    if subject.candidate.fault is not None:
        return
    yield from lifecycle.build(subject)
    builder = BUILDERS.get(subject.candidate.kind)
    if builder is not None:
        yield from importlib.import_module(builder).build(subject)


def _not_installed(distribution: str) -> None:
    raise PluginError(f"no installed distribution {distribution!r} offers a plugin; install it first", stage="metadata")
