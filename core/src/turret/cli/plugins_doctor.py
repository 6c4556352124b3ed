"""`turret plugins doctor`: load every plugin, each distribution in a process of its own, and say what is broken.

Owns the report and the child's protocol (one JSON object on standard output). A plugin that hangs, crashes or prints
cannot harm the report.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import time
from typing import Any

from turret.cli.plugins_views import host_of, print_json, table
from turret.errors import TurretError
from turret.plugins import PluginHost, Registry, Request, State
from turret.plugins.faults import Fault, one_line
from turret.plugins.metadata import scan_distributions

__all__ = ["doctor", "examine"]

MARK = "turret-doctor:"


def doctor(args: argparse.Namespace) -> int:
    """Exit status 1 when anything is broken or offered twice."""
    host = host_of(args)
    static = {item.candidate.id: item for item in host.survey()}
    loadable = [item.candidate for item in static.values() if item.verdict.ok]
    loaded: dict[tuple[str, str, str], dict[str, Any]] = {}
    for distribution in dict.fromkeys(item.distribution for item in loadable):
        for entry in _examined(distribution, args.timeout):
            loaded[entry["kind"], entry["name"], distribution] = entry
    reports = []
    for identity, judged in static.items():
        facts = loaded.get(identity) if judged.verdict.ok else None
        told = {"state": str(judged.state), "problem": "; ".join(judged.verdict.reasons), "remedy": judged.remedy}
        plugin = {"plugin": judged.candidate.label, "distribution": judged.candidate.distribution}
        reports.append({**plugin, "version": judged.candidate.version, **(facts or told)})
    conflicts = _conflicts(host)
    if args.json:
        print_json({"plugins": reports, "conflicts": conflicts})
    else:
        _print(reports, conflicts)
    return int(bool(conflicts) or any(item["state"] == State.BROKEN for item in reports))


def _conflicts(host: PluginHost) -> list[str]:
    """What two distributions offer under one name, where the policy does not settle it."""
    problems = []
    for kind, name in dict.fromkeys((item.kind, item.name) for item in host.registry.candidates):
        if len(host.registry.find(kind, name)) > 1:
            problem = host.consider(Request(kind, key=name, explicit=f"{kind}:{name}"), ask=False).problem
            problems.extend([problem] if "two distributions" in problem else [])
    return problems


def _examined(distribution: str, timeout: float) -> list[dict[str, Any]]:
    """Ask a child to load all plugins of a distribution; a child that fails speaks for each of them."""
    command = [sys.executable, "-c", f"from turret.cli.plugins_doctor import examine; examine({distribution!r})"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
        if lines:
            found: list[dict[str, Any]] = json.loads(lines[-1].removeprefix(MARK))
            return found
        ending = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        problem = f"the process that loaded it ended with status {done.returncode}: {ending}"
    except subprocess.TimeoutExpired:
        problem = f"not loaded within {timeout:g} s"
    told = {"state": str(State.BROKEN), "problem": one_line(problem), "remedy": f"deny {distribution}, or reinstall it"}
    offers = Registry.build(scan_distributions([distribution])).candidates
    return [{"kind": item.kind, "name": item.name, **told} for item in offers]


def examine(distribution: str) -> None:
    """In the child: load each plugin, run platform probes, and print what happened."""
    logging.getLogger("turret.plugins").setLevel(logging.ERROR)
    host = PluginHost.discover(scan=scan_distributions([distribution]))
    entries = []
    for item in host.registry.candidates:
        started = time.monotonic()
        entry: dict[str, Any] = {"kind": item.kind, "name": item.name, "state": str(State.ACTIVE), "problem": ""}
        try:
            host.load(item)
            if item.kind == "platform":
                judged = host.consider(Request("platform", explicit=item.label)).of(item)
                entry["problem"] = "" if judged is None or judged.verdict.ok else "; ".join(judged.verdict.reasons)
                entry["state"] = str(judged.state) if judged is not None and not judged.verdict.ok else entry["state"]
        except TurretError as exc:
            fault = host.fault(item) or Fault(item.label, item.distribution, item.version, "load", str(exc), "")
            entry.update(state=str(State.BROKEN), problem=f"{fault.stage}: {fault.reason}", remedy=fault.remedy)
            entry["traceback"] = fault.traceback
        entry["seconds"] = round(time.monotonic() - started, 3)
        entry["loads_torch"] = "torch" in sys.modules
        entries.append(entry)
    print(MARK + json.dumps(entries))


def _print(reports: list[dict[str, Any]], conflicts: list[str]) -> None:
    rows = [("PLUGIN", "DISTRIBUTION", "STATE", "SECONDS", "")]
    for item in reports:
        seconds = f"{item['seconds']:.2f}" if "seconds" in item else ""
        distribution = f"{item['distribution']} {item['version']}"
        rows.append((item["plugin"], distribution, item["state"], seconds, item["problem"]))
    print(table(rows))
    for item in reports:
        if item.get("remedy") and item["state"] == State.BROKEN:
            print(f"{item['plugin']}: {item['remedy']}")
    print("\n".join(conflicts))
