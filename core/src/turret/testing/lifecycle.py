"""Lifecycle cases: loading twice, and loading in a spawned process from a frozen plan.

Owns these checks for every kind.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from turret.plugins import Plan, PluginHost, unguarded
from turret.testing.cases import Case, Subject

__all__ = ["build"]

CHILD = """
import sys
from turret.plugins import Plan, PluginHost
host = PluginHost.from_plan(Plan.from_json(sys.stdin.buffer.read()))
for item in host.planned({kind!r}):
    if item.name == {name!r}:
        host.load(item)
        print("loaded", item.identity)
"""


def build(subject: Subject) -> Iterator[Case]:
    yield subject.case("lifecycle", "double_load", _double_load, subject)
    yield subject.case("lifecycle", "planned_load", _planned_load, subject)
    yield subject.case("lifecycle", "spawned_load", _spawned_load, subject)


def _double_load(subject: Subject) -> None:
    """One instance a host; hosts do not share instances unless the entry point is the instance itself."""
    first, second = subject.host(), subject.host()
    assert first.load(subject.candidate) is first.load(subject.candidate)
    one, other = unguarded(first.load(subject.candidate)), unguarded(second.load(subject.candidate))
    assert type(one) is type(other), "loading twice gives objects of different types"


def _plan(subject: Subject) -> Plan:
    host = subject.host()
    host.load(subject.candidate)
    return host.freeze()


def _planned_load(subject: Subject) -> None:
    """A plan survives JSON and a host made of it knows this plugin and no other."""
    plan = _plan(subject)
    host = PluginHost.from_plan(Plan.from_json(plan.to_json()))
    assert [item.id for item in host.registry.candidates] == [subject.candidate.id]
    host.load(host.planned(subject.candidate.kind)[0])


def _spawned_load(subject: Subject) -> None:
    """A new process loads exactly the plan."""
    code = CHILD.format(kind=subject.candidate.kind, name=subject.candidate.name)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=_plan(subject).to_json(), capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert f"loaded {subject.candidate.identity}" in done.stdout.decode()
