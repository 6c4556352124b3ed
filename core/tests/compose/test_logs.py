"""What reaches the log, process-wide: tried in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

SAY = """
import logging
from turret.compose.logs import setup_logging
setup_logging({level!r}, {{"uvicorn.access": "ERROR"}})
for name in ("turret.engine", "turret_platform_acme", "somebody.else", "uvicorn.access"):
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logging.getLogger(name).log(level, "said")
"""


def said(level: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", SAY.format(level=level)], capture_output=True, text=True, check=True)
    return [" ".join(line.split()[1:3]).rstrip(":") for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("level", "ours"),
    [("debug", ["DEBUG", "INFO", "WARNING", "ERROR"]), ("info", ["INFO", "WARNING", "ERROR"]), ("error", ["ERROR"])],
)
def test_the_level_is_turrets_and_its_plugins(level: str, ours: list[str]) -> None:
    theirs = [name for name in ("WARNING", "ERROR") if name in ours]
    expected = [f"{name} turret.engine" for name in ours] + [f"{name} turret_platform_acme" for name in ours]
    expected += [f"{name} somebody.else" for name in theirs] + ["ERROR uvicorn.access"]
    assert said(level) == expected
