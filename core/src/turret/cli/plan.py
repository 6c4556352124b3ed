"""`turret plan MODEL`: what serving it would take, and which plugins would do it, without loading weights.

Owns: how the answer is shown. Knows nothing of how it is found out.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from turret.cli.arguments import read_options
from turret.config import Config

if TYPE_CHECKING:
    from turret.compose.forecast import Forecast

__all__ = ["run"]

HELP = """usage: turret plan [MODEL] [--json] [OPTIONS]

Show what serving a model would take (weights, KV cache per token, tokens and users that fit) and which plugins would do
it, without loading weights. The options are those of `turret serve`.
"""


def run(argv: Sequence[str]) -> int:
    """Print the plan, as a table or as JSON."""
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    options = read_options([word for word in argv if word != "--json"], os.environ)
    from turret.compose.forecast import forecast  # torch: not before the command line is known to be right

    found = forecast(Config.from_options(options), tuple(options))
    if "--json" in argv:
        print(json.dumps(dataclasses.asdict(found)))
    else:
        print("\n".join(_lines(found)))
    return 0


def _lines(found: Forecast) -> list[str]:
    names = ", ".join(f"{kind} {name}" for kind, name in found.names.items())
    limits = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in found.limits.items())
    return [
        f"model       {found.model}: {names}",
        f"memory      {_size(found.memory_bytes)}, of which weights {_size(found.weight_bytes)} "
        f"and KV cache {_size(found.kv_bytes)}",
        f"KV cache    {_size(found.kv_bytes_per_token)} per token; {found.kv_tokens} tokens fit",
        f"context     {found.max_model_len} tokens",
        *(f"users       {count} at once with {tokens} tokens each" for tokens, count in found.users.items()),
        f"options     {limits}",
        *(f"plugin      {label}" for label in found.plugins),
    ]


def _size(value: int) -> str:
    """Bytes in the largest unit that leaves at least 1."""
    amount = float(value)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.4g} {unit}"
        amount /= 1024
    return f"{amount:.2f} GiB"
