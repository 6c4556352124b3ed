"""`turret bench`: which measurement, then its own module.

Owns: the list of measurements. Knows nothing of how they are made.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from turret.errors import ConfigError

__all__ = ["run"]

MEASUREMENTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "serve": ("turret.cli.bench_serve:serve", "load any server with the OpenAI API and time its streams"),
        "throughput": ("turret.cli.bench_engine:throughput", "run many prompts at once in this process"),
        "latency": ("turret.cli.bench_engine:latency", "run one batch again and again in this process"),
        "startup": ("turret.cli.bench_startup:startup", "time `turret serve` from the command to the first token"),
    }
)


def run(argv: Sequence[str]) -> int:
    """Measure; prints a table, and JSON as the last line. Options without a measurement mean `latency`."""
    name = argv[0] if argv else ""
    if name in ("-h", "--help"):
        print("usage: turret bench MEASUREMENT [OPTIONS]\n")
        for known, (_, text) in MEASUREMENTS.items():
            print(f"  {known:12} {text}")
        print("\n`turret bench MEASUREMENT --help` lists its options. The last line of output is JSON.")
        print("Options alone, as in `turret bench --profile`, are those of latency.")
        return 0
    if name.startswith("--"):
        name, argv = "latency", [name, *argv]
    if name not in MEASUREMENTS:
        raise ConfigError(f"turret bench measures {', '.join(MEASUREMENTS)}; got {name or 'nothing'}")
    module, _, function = MEASUREMENTS[name][0].partition(":")
    status: int = getattr(importlib.import_module(module), function)(argv[1:])
    return status
