"""Lifecycle cases: loading twice, and loading in a spawned process from a frozen plan.

Owns these checks for every kind.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence

from turret.plugins import Candidate, Plan, PluginHost, unguarded
from turret.testing.cases import Case, Subject

__all__ = ["build"]

CHILD = """
import sys
from turret.plugins import Plan, PluginHost
host = PluginHost.from_plan(Plan.from_json(sys.stdin.buffer.read()))
for item in host.registry.candidates:
    host.load(item)
    print("loaded", item.identity)
"""


def build(subject: Subject) -> Iterator[Case]:
    yield subject.case("lifecycle", "double_load", _double_load, subject)
    yield subject.case("lifecycle", "planned_load", _planned_load, subject)
    if subject.leads:
        yield subject.case("lifecycle", "spawned_load", _spawned_load, subject)


def _double_load(subject: Subject) -> None:
    """One instance a host; hosts do not share instances unless the entry point is the instance itself."""
    first, second = subject.host(), subject.host()
    assert first.load(subject.candidate) is first.load(subject.candidate)
    one, other = unguarded(first.load(subject.candidate)), unguarded(second.load(subject.candidate))
    assert type(one) is type(other), "loading twice gives objects of different types"


def _plan(subject: Subject, candidates: Sequence[Candidate]) -> Plan:
    host = subject.host()
    for candidate in candidates:
        host.load(candidate)
    return host.freeze()


def _planned_load(subject: Subject) -> None:
    """A plan survives JSON and a host made of it knows this plugin and no other."""
    plan = _plan(subject, [subject.candidate])
    host = PluginHost.from_plan(Plan.from_json(plan.to_json()))
    assert [item.id for item in host.registry.candidates] == [subject.candidate.id]
    host.load(host.planned(subject.candidate.kind)[0])


def _spawned_load(subject: Subject) -> None:
    """A new process loads exactly the plan: this plugin and all others of its distribution."""
    plan = _plan(subject, subject.siblings).to_json()
    done = subprocess.run([sys.executable, "-c", CHILD], input=plan, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert set(done.stdout.decode().splitlines()) == {f"loaded {one.identity}" for one in subject.siblings}
