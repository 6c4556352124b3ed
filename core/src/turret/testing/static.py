"""Static and contract cases: what a plugin says about itself, and whether its members fit the contract.

Owns the checks that need no device and no numbers.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator

from turret.compose.hosts import CONTRACTS
from turret.plugins.loading import public_members
from turret.testing.cases import Case, NotApplicable, Subject

__all__ = ["build"]

TORCH_FREE = frozenset(
    {"platform", "quant", "tool_parser", "reasoning_parser", "policy", "hook", "endpoint", "metrics"}
)
"""Kinds that are asked before torch is loaded, or in processes that never load it."""

LOOK = """
import sys, threading
import importlib
importlib.import_module({module!r})
print("torch" in sys.modules, threading.active_count())
"""


def build(subject: Subject) -> Iterator[Case]:
    yield subject.case("static", "manifest", _manifest, subject)
    if subject.candidate.fault is not None:
        return
    yield subject.case("static", "options_schema", _options_schema, subject)
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
    """Importing the code prints nothing, starts no thread, and loads no torch where that is promised."""
    module = subject.candidate.value.partition(":")[0].strip()
    command = [sys.executable, "-c", LOOK.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1, f"importing {module} prints: {lines[:-1]}"
    torch_loaded, threads = lines[0].split()
    assert threads == "1", f"importing {module} leaves {threads} threads running"
    if subject.candidate.kind in TORCH_FREE:
        assert torch_loaded == "False", (
            f"importing {module} loads torch, but a {subject.candidate.kind} plugin is imported before torch is; "
            "import torch under TYPE_CHECKING or inside the methods that compute"
        )


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
