"""Lines of a start: on a terminal the running step shows its share, unless told not to."""

from __future__ import annotations

import io

import pytest

from turret.cli import progress as progress_module
from turret.cli.progress import StartProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(out: io.StringIO, show_bars: bool) -> str:
    progress = StartProgress(out, show_bars)
    progress.update("loading weights", 0.0)
    progress.update("loading weights", 0.5)
    progress.update("loading weights", 1.0)
    progress.say("ready")
    return out.getvalue()


@pytest.mark.parametrize(
    ("out", "show_bars", "moves"),
    [(Terminal, True, True), (Terminal, False, False), (io.StringIO, True, False)],
    ids=["terminal", "terminal without bars", "file"],
)
def test_who_sees_a_step_move(out: type[io.StringIO], show_bars: bool, moves: bool) -> None:
    said = run(out(), show_bars)
    assert ("50%" in said and "\r" in said) == moves
    assert said.endswith("ready\n")


def test_a_slow_step_gets_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_NOTABLE_SECONDS", 0.0)
    assert [line.split(":")[0] for line in run(io.StringIO(), True).splitlines()] == ["  loading weights", "ready"]
