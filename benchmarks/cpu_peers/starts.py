"""First tokens of `turret serve`: a cold start, and a second one with what the first left in the disk cache.

Owns: the order of the starts. The clock is `turret bench startup`'s.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

from cpu_peers.figures import Fact, Record

__all__ = ["measure_starts"]

COLD, SECOND = 4.0, 3.0
"""Seconds to the first token that are allowed."""


def measure_starts(record: Record, runs: int = 3) -> None:
    """Each cold start has an empty cache folder; the second one finds what it left."""
    found: dict[str, list[float]] = {"start_cold": [], "start_second": []}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as cache:
            for seconds in found.values():
                seconds.append(_start(cache))
    for (name, seconds), most in zip(found.items(), (COLD, SECOND), strict=True):
        value = {"seconds": round(statistics.median(seconds), 2), "at_most": most, "runs": seconds}
        record.add(Fact(record.run, name, value))
        print(f"{name}: {value}", flush=True)


def _start(cache: str) -> float:
    command = [sys.executable, "-m", "turret.cli.main", "bench", "startup", "demo", "--num-runs", "1"]
    env = {**os.environ, "XDG_CACHE_HOME": cache}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.strip().splitlines()[-1])["first_token_s_p50"])
