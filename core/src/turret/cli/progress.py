"""Progress of a start: one line for each slow step, with its seconds.

Owns: what a person sees while waiting. Knows nothing of what the steps do.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TextIO

__all__ = ["StartProgress"]

_NOTABLE_SECONDS = 0.25
"""Steps shorter than this are not worth a line."""


@dataclass(slots=True)
class _Step:
    """A step that runs."""

    stage: str
    began: float
    fraction: float = 0.0


class StartProgress:
    """Prints steps as they end; on a terminal the running ones show their share. Several engines load at the same time:
    the steps of each ("engine 1: loading weights") follow each other on their own."""

    def __init__(self, out: TextIO = sys.stderr, show_bars: bool = True) -> None:
        self._out = out
        self._live = show_bars and out.isatty()
        self._began = time.monotonic()
        self._running: dict[str, _Step] = {}  # by engine, empty where there is one

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """A line of its own."""
        self._clear()
        print(text, file=self._out, flush=True)

    def update(self, stage: str, fraction: float) -> None:
        """`stage` has come to `fraction` (0 to 1)."""
        engine = stage.rpartition(": ")[0]
        running = self._running.get(engine)
        if running is None or running.stage != stage:
            self._end(engine)
            running = self._running[engine] = _Step(stage, time.monotonic())
        running.fraction = fraction
        if fraction >= 1:
            self._end(engine)
        elif self._live:
            steps = ", ".join(f"{step.stage} {step.fraction:4.0%}" for step in self._running.values())
            print(f"\r\x1b[K  {steps}", end="", file=self._out, flush=True)

    def end(self) -> None:
        """Every running step is over."""
        for engine in list(self._running):
            self._end(engine)
        self._clear()

    def _end(self, engine: str) -> None:
        step = self._running.pop(engine, None)
        if step is not None and (seconds := time.monotonic() - step.began) >= _NOTABLE_SECONDS:
            self.say(f"  {step.stage}: {seconds:.1f} s")
        self._clear()

    def _clear(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=self._out, flush=True)
