"""Static and contract cases: what a plugin says about itself, and whether its members fit the contract.

Owns the checks that need no device and no numbers.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator

from turret.compose.hosts import CONTRACTS
from turret.plugins import Candidate
from turret.plugins.loading import public_members
from turret.testing.cases import Case, NotApplicable, Subject

__all__ = ["build"]

TORCH_FREE = frozenset(
    {"platform", "quant", "tool_parser", "reasoning_parser", "policy", "hook", "endpoint", "metrics", "structured"}
)
"""Kinds that are asked before torch is loaded, or in processes that never load it."""

LOOK = """
import importlib, sys, threading
for module in {light!r}:
    importlib.import_module(module)
loaded = "torch" in sys.modules
for module in {rest!r}:
    importlib.import_module(module)
print(loaded, threading.active_count())
"""


def build(subject: Subject) -> Iterator[Case]:
    yield subject.case("static", "manifest", _manifest, subject)
    if subject.candidate.fault is not None:
        return
    yield subject.case("static", "options_schema", _options_schema, subject)
    if subject.leads:
        yield subject.case("static", "import", _import, subject)
    yield subject.case("static", "requirements", _requirements, subject)
    contract = CONTRACTS.get(subject.candidate.kind)
    if contract is None:
        return
    for name in sorted(public_members(contract)):
        yield subject.case("contract", name, _member, subject, contract, name)


def _manifest(subject: Subject) -> None:
    """Entry points and manifest agree; without a manifest the object must say its API version."""
    if subject.candidate.fault is not None:
        raise subject.candidate.fault.error()
    if subject.candidate.provided is None:
        subject.load()


def _options_schema(subject: Subject) -> None:
    provided = subject.candidate.provided
    if provided is None or provided.options is None:
        raise NotApplicable("it declares no options")
    from jsonschema import Draft202012Validator  # slow to import, and most plugins have no options

    Draft202012Validator.check_schema(provided.options)


def _import(subject: Subject) -> None:
    """Importing the distribution prints nothing, starts no thread, and loads no torch where that is promised."""
    light = sorted({_module(one) for one in subject.siblings if one.kind in TORCH_FREE})
    rest = sorted({_module(one) for one in subject.siblings} - set(light))
    command = [sys.executable, "-c", LOOK.format(light=light, rest=rest)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1, f"importing {', '.join(light + rest)} prints: {lines[:-1]}"
    torch_loaded, threads = lines[0].split()
    assert threads == "1", f"importing {', '.join(light + rest)} leaves {threads} threads running"
    assert torch_loaded == "False", (
        f"importing {', '.join(light)} loads torch, but plugins of these kinds are imported before torch is; "
        "import torch under TYPE_CHECKING or inside the methods that compute"
    )


def _module(candidate: Candidate) -> str:
    return candidate.value.partition(":")[0].strip()


def _requirements(subject: Subject) -> None:
    """What the manifest requires is here, or the rest of this report means nothing."""
    ok, reasons = True, ""
    for judged in subject.host().survey():
        if judged.candidate.id == subject.candidate.id:
            ok, reasons = judged.verdict.ok, "; ".join(judged.verdict.reasons)
    assert ok, reasons


def _member(subject: Subject, contract: type, name: str) -> None:
    """The member is there, and a method takes what the contract passes."""
    plugin = subject.load()
    assert hasattr(plugin, name), f"{contract.__name__}.{name} is missing"
    asked = inspect.getattr_static(contract, name, None)
    if not inspect.isfunction(asked):
        return
    offered = getattr(plugin, name)
    assert callable(offered), f"{name} is not callable"
    parameters = list(inspect.signature(asked).parameters.values())[1:]
    try:
        inspect.signature(offered).bind(*parameters)
    except TypeError as exc:
        raise AssertionError(f"{name}{inspect.signature(offered)} does not take {len(parameters)} arguments") from exc
