"""Lines of a start: steps of one engine, and of several that load at the same time."""

from __future__ import annotations

import io

import pytest

from turret.cli import progress as progress_module
from turret.cli.progress import StartProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    return now


def test_a_step_is_told_when_it_ends_if_it_was_slow(clock: list[float]) -> None:
    out = io.StringIO()
    shown = StartProgress(out)
    shown.update("choosing plugins", 0.0)
    clock[0] += 1.0
    shown.update("loading weights", 0.0)  # the one before has ended, said or not
    clock[0] += 0.1
    shown.update("loading weights", 1.0)
    shown.end()
    assert out.getvalue().splitlines() == ["  choosing plugins: 1.0 s"]


def test_engines_that_load_together_do_not_end_each_others_steps(clock: list[float]) -> None:
    out = io.StringIO()
    shown = StartProgress(out)
    for engine in (0, 1):
        shown.update(f"engine {engine}: loading weights", 0.0)
    for tenth in range(1, 10):
        clock[0] += 0.1
        for engine in (0, 1):
            shown.update(f"engine {engine}: loading weights", tenth / 10)
    assert out.getvalue() == ""
    shown.update("engine 1: loading weights", 1.0)
    clock[0] += 1.0
    shown.update("engine 0: first run", 0.0)
    clock[0] += 2.0
    shown.end()
    assert out.getvalue().splitlines() == [
        "  engine 1: loading weights: 0.9 s", "  engine 0: loading weights: 1.9 s", "  engine 0: first run: 2.0 s",
    ]  # fmt: skip


def test_a_terminal_shows_what_runs_now(clock: list[float]) -> None:
    out = Terminal()
    shown = StartProgress(out)
    shown.update("engine 0: loading weights", 0.25)
    shown.update("engine 1: loading weights", 0.5)
    assert out.getvalue().endswith("  engine 0: loading weights  25%, engine 1: loading weights  50%")
