"""`turret plugins explain ops`: whose kernels compute the demo model."""

from __future__ import annotations

import json
import subprocess
import sys


def explain(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "turret.cli.main", "plugins", "explain", "ops", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_demo_model_is_one_native_program() -> None:
    said = explain("--model", "demo", "--json")
    assert said.returncode == 0, said.stderr
    told = json.loads(said.stdout)
    assert {name for name, origin in told["ops"].items() if origin != "cpu"} <= {"moe"}  # which it has no use for
    assert list(told["linear"]) == ["cpu"] and told["attention"] == "cpu"
    assert told["recorded_kernels"] == 2 + 30 * 9 - 29 and told["not_recorded"] is None


def test_without_the_native_attention_each_layer_splits_the_program() -> None:
    said = explain("--model", "demo", "--plugins-deny", "attention:cpu")
    assert said.returncode == 0, said.stderr
    assert "recorded: 242 kernels in 31 pieces; between them run on torch:\n  attention:torch (30 times)" in said.stdout


def test_ops_of_no_model() -> None:
    said = explain()
    assert said.returncode != 0 and "name one with --model" in said.stderr
