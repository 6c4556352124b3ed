"""First tokens of `turret serve`: a first start, and a second one with what the first left in the disk cache.

Owns: what is allowed. The starts and the clock are benchmarks/startup.py's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cpu_peers.figures import Fact, Record

__all__ = ["measure_starts"]

PROGRAM = Path(__file__).parents[1] / "startup.py"
ALLOWED = {"first_start": 4.0, "second_start": 3.0}
"""Seconds to the first token."""


def measure_starts(record: Record, port: int, runs: int = 3) -> None:
    """Each first start has an empty cache folder; the second one finds what it left."""
    command = [sys.executable, str(PROGRAM), "--runs", str(runs), "--port", str(port)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    for name, most in ALLOWED.items():
        value = {"seconds": found[f"{name}_s"], "at_most": most}
        record.add(Fact(record.run, f"start_{name}", value))
        print(f"{name}: {value}", flush=True)
