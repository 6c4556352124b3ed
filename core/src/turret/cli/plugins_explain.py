"""`turret plugins explain`: every candidate of a kind, its verdict, and the tier the reason came from.

Owns the report. With a model the candidates are asked, which imports those that come that far; without, only manifests
speak (and, for platforms, probes).
"""

from __future__ import annotations

import argparse

from turret.cli.plugins_ops import explain_ops_of
from turret.cli.plugins_query import PARSERS, model_query
from turret.cli.plugins_views import facts, host_of, print_json
from turret.compose.parser_choice import recognised
from turret.plugins import Request
from turret.plugins.kinds import kind_named

__all__ = ["explain_kind"]


def explain_kind(args: argparse.Namespace) -> int:
    """Exit status 1 when the selection is an error."""
    if args.kind == "ops":
        return explain_ops_of(args)
    kind_named(args.kind)
    host = host_of(args)
    query, key = model_query(args.kind, args.model, host)
    asked = args.model is not None or args.kind == "platform"
    selection = host.consider(Request(args.kind, query, key, args.explicit), ask=asked)
    found = recognised(selection) if args.kind in PARSERS and query is not None else selection.chosen
    chosen = found.label if found else None
    if args.json:
        judged = [facts(item) for item in selection.judged]
        print_json({"kind": args.kind, "chosen": chosen, "problem": selection.problem, "candidates": judged})
        return int(bool(selection.problem))
    for item in selection.judged:
        mark = "*" if found is not None and item.candidate.id == found.id else " "
        print(f"{mark} {item.line()}")
        if item.remedy:
            print(f"    remedy: {item.remedy}")
    print(selection.problem or (f"chosen: {chosen}" if chosen else f"no {args.kind} plugin qualifies"))
    return int(bool(selection.problem))
