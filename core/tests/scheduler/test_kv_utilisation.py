"""The pool is used for tokens: at peak at least 96% of the slots in use hold live ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[3] / "benchmarks" / "kv_utilisation.py"


def test_slots_in_use_hold_live_tokens() -> None:
    run = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=True)
    figures = json.loads(run.stdout.splitlines()[-1])
    for layout in ("full", "full_and_sliding"):
        assert figures[layout]["peak_usage"] >= 0.95, "the pool was never full: the figure would mean nothing"
        assert figures[layout]["at_peak"] >= 0.96
