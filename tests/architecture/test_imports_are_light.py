"""The doors open without the heavy libraries: each import is tried in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers")


def _heavy_after(code: str) -> list[str]:
    probe = f"{code}\nimport sys\nprint('heavy:' + ','.join(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=True)
    names = done.stdout.rpartition("heavy:")[2].strip()
    return names.split(",") if names else []


@pytest.mark.parametrize(
    "module", ["turret", "turret.server.app", "turret.cli.main", "turret.engine", "turret.scheduler", "turret.text",
               "turret.contracts", "turret.plugins", "turret.compose", "turret.llm"],
)
def test_import_loads_nothing_heavy(module: str) -> None:
    assert _heavy_after(f"import {module}") == []


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom turret.cli.main import main\nsys.argv = ['turret', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    print()"
    )
    assert _heavy_after(code) == []
