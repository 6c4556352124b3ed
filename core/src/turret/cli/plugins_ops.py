"""`turret plugins explain ops --model M`: whose kernels compute a model, and whether its forward is recorded.

Owns the report; the model is loaded for it.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from turret.cli.plugins_views import host_of, print_json, table
from turret.errors import ConfigError

__all__ = ["explain_ops_of"]


def explain_ops_of(args: argparse.Namespace) -> int:
    """Load the model, ask its worker, print."""
    if args.model is None:
        raise ConfigError("what runs on which kernels depends on the model: name one with --model", "model")
    # Imported here: an answer about plugins alone must not load what starts engines.
    from turret.compose.explain import explain_ops

    told = explain_ops(args.model, host_of(args))
    if args.json:
        print_json(told)
        return 0
    print(table(_rows(told)))
    print(_recording(told))
    return 0


def _recording(told: dict[str, Any]) -> str:
    """Whether the forward is recorded, whole or in pieces, and what splits it."""
    if told["recorded_kernels"] is None:
        return f"runs op by op: {told['not_recorded']}"
    splits = Counter(told["splits"])
    if not splits:
        return f"recorded: one program of {told['recorded_kernels']} kernels, no op runs outside it"
    lines = [f"recorded: {told['recorded_kernels']} kernels in {splits.total() + 1} pieces; between them run on torch:"]
    return "\n".join(lines + [f"  {what} ({count} times)" for what, count in splits.items()])


def _rows(told: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("OP", "COMPUTED BY"), *sorted(told["ops"].items())]
    rows += [("linear", f"{kernel} ({count} weights)") for kernel, count in told["linear"].items()]
    return [*rows, ("attention", told["attention"])]
