"""What reaches the log, process-wide: tried in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from turret.compose.logs import setup_logging
from turret.errors import ConfigError

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


def test_a_file_says_what_is_logged(tmp_path) -> None:
    target, file = tmp_path / "lines.log", tmp_path / "logs.json"
    handler = {"class": "logging.FileHandler", "filename": str(target), "formatter": "plain"}
    file.write_text(json.dumps({
        "version": 1, "formatters": {"plain": {"format": "%(name)s/%(message)s"}}, "handlers": {"file": handler},
        "loggers": {"turret": {"level": "WARNING", "handlers": ["file"]}},
    }))  # fmt: skip
    say = SAY.replace('{{"uvicorn.access": "ERROR"}}', "file={file!r}").format(level="debug", file=str(file))
    subprocess.run([sys.executable, "-c", say], check=True)
    assert target.read_text().splitlines() == ["turret.engine/said"] * 2


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "No such file"), ("{", "no log configuration"), ("[]", "no log configuration"),
     ('{"version": 1, "handlers": {"h": {"class": "no.such"}}}', "no log configuration")],
)  # fmt: skip
def test_a_file_that_is_none_is_told(tmp_path, text, words) -> None:
    file = tmp_path / "logs.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=words) as told:
        setup_logging("info", file=str(file))
    assert told.value.option == "log-config-file"
