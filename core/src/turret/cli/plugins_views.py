"""`turret plugins list`, `show`, `lock`: what is there, from metadata and manifests only.

Owns the tables and JSON of these commands. Imports no plugin.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from turret.compose.parser_choice import add_parser_files
from turret.errors import PluginError
from turret.plugins import Candidate, Judged, PluginHost, Policy, write_plan
from turret.plugins.kinds import kind_named
from turret.plugins.plan import package_hash

__all__ = ["facts", "host_of", "list_plugins", "lock_plugins", "print_json", "show_plugin", "table"]


def host_of(args: argparse.Namespace) -> PluginHost:
    """A host under the policy that the command line gives."""
    pins = Policy.read_pins(args.plugin_pin)
    allow, deny, prefer = tuple(args.plugins_allow), tuple(args.plugins_deny), tuple(args.plugins_prefer)
    host = PluginHost.discover(Policy(allow=allow, deny=deny, prefer=prefer, pins=pins))
    add_parser_files(host, args.tool_parser_plugin, args.reasoning_parser_plugin)
    return host


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def list_plugins(args: argparse.Namespace) -> int:
    if args.kind is not None:
        kind_named(args.kind)
    host = host_of(args)
    shown = [item for item in host.survey() if args.kind in (None, item.candidate.kind)]
    if args.json:
        strays = [f"{entry.group}: {entry.name} ({entry.distribution})" for entry in host.registry.strays]
        print_json({"plugins": [facts(item) for item in shown], "unknown_groups": strays})
        return 0
    rows = [("PLUGIN", "DISTRIBUTION", "API", "CLASS", "STATE", "")]
    rows.extend(_row(item) for item in shown)
    print(table(rows))
    for entry in host.registry.strays:
        print(f"note: {entry.distribution} registers {entry.name!r} in {entry.group}, a group turret does not know")
    return 0


def _row(item: Judged) -> tuple[str, str, str, str, str, str]:
    told = facts(item)
    return (
        item.candidate.label,
        f"{item.candidate.distribution} {item.candidate.version}",
        told["api"],
        told["class"],
        str(item.state),
        "; ".join(item.verdict.reasons),
    )


def facts(item: Judged) -> dict[str, Any]:
    """One candidate as JSON."""
    candidate = item.candidate
    provided = candidate.provided
    return {
        "kind": candidate.kind,
        "name": candidate.name,
        "distribution": candidate.distribution,
        "version": candidate.version,
        "entry_point": candidate.value,
        "api": provided.api if provided else "known after load",
        "class": candidate.standing,
        "status": provided.status if provided else "known after load",
        "state": str(item.state),
        "tier": str(item.tier),
        "ok": item.verdict.ok,
        "reasons": list(item.verdict.reasons),
        "remedy": item.remedy,
    }


def show_plugin(args: argparse.Namespace) -> int:
    host = host_of(args)
    found = host.registry.named(args.name)
    if not found:
        raise PluginError(f"no installed plugin is called {args.name!r}; `turret plugins list` shows what is there")
    shown = [_details(host, item) for item in found]
    if args.json:
        print_json({"plugins": shown})
        return 0
    print("\n\n".join("\n".join(_lines(details)) for details in shown))
    return 0


def _details(host: PluginHost, candidate: Candidate) -> dict[str, Any]:
    judged = next(item for item in host.survey() if item.candidate.id == candidate.id)
    told = facts(judged)
    told["files_sha256"] = package_hash(candidate.top_package)
    if candidate.provided is not None:
        manifest = msgspec.to_builtins(candidate.provided)
        keep = ("processes", "requires", "capabilities", "options", "posture", "detect", "covers_any")
        told.update((key, manifest[key]) for key in keep)
        told["processes"] = sorted(candidate.processes)
    return told


def _lines(details: Mapping[str, Any]) -> Iterable[str]:
    yield f"{details['kind']}:{details['name']}"
    for key, value in details.items():
        if key in ("kind", "name") or value in (None, "", [], {}):
            continue
        yield f"  {key}: {json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value}"


def lock_plugins(args: argparse.Namespace) -> int:
    plan = host_of(args).lock()
    write_plan(plan, Path(args.output))
    if args.json:
        print_json({"file": args.output, **msgspec.to_builtins(plan)})
    else:
        print(f"locked {len(plan.entries)} plugins of {len(plan.distributions())} distributions in {args.output}")
    return 0
