"""Progress of a start: one line for each slow step, with its seconds.

Owns: what a person sees while waiting. Knows nothing of what the steps do.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["StartProgress"]

_NOTABLE_SECONDS = 0.25
"""Steps shorter than this are not worth a line."""


class StartProgress:
    """Prints steps as they end; on a terminal the running one shows its share."""

    def __init__(self, out: TextIO = sys.stderr, show_bars: bool = True) -> None:
        self._out = out
        self._live = show_bars and out.isatty()
        self._began = time.monotonic()
        self._stage = ""
        self._stage_began = self._began

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
        if stage != self._stage:
            self.end()
            self._stage, self._stage_began = stage, time.monotonic()
        if fraction >= 1:
            self.end()
        elif self._live:
            print(f"\r\x1b[K  {stage} {fraction:4.0%}", end="", file=self._out, flush=True)

    def end(self) -> None:
        """The running step is over."""
        seconds = time.monotonic() - self._stage_began
        if self._stage and seconds >= _NOTABLE_SECONDS:
            self.say(f"  {self._stage}: {seconds:.1f} s")
        self._clear()
        self._stage = ""

    def _clear(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=self._out, flush=True)
