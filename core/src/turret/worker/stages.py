"""Where a step's time goes, stage by stage.

Owns: the clock. Knows nothing of what a stage does. While nobody profiles there is no clock; a stage costs one look.
"""

from __future__ import annotations

import time
from collections import defaultdict

__all__ = ["Stages", "lap"]


class Stages:
    """Seconds by stage; a lap ends a stage and begins the next one."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.steps = 0
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """What passed since the last lap was spent on `name`."""
        now = time.perf_counter()
        self.seconds[name] += now - self._last
        self._last = now


def lap(stages: Stages | None, name: str) -> None:
    """End a stage, if anybody counts."""
    if stages is not None:
        stages.lap(name)
