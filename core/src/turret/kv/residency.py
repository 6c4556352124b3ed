"""How long blocks stay: a sample of them, watched from being taken to being taken again.

Owns: clocks of the watched blocks. Knows nothing of requests or of who counts what it saw.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["BlockStays", "Residency"]

_REMEMBERED = 4
"""Uses of a block whose times are kept; the gaps between older ones are lost."""


@dataclass(slots=True)
class BlockStays:
    """What was seen of blocks that gave up their contents, in seconds: from being taken until then, from the last use
    until then, and between two uses of one."""

    lifetimes: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    reuse_gaps: list[float] = field(default_factory=list)


class _Stay:
    __slots__ = ("since", "used")

    def __init__(self, now: float) -> None:
        self.since = now
        self.used: deque[float] = deque(maxlen=_REMEMBERED)


class Residency:
    """Watches a share of the blocks, drawn when they are taken; costs the others one draw."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._draw = random.Random().random
        self._stays: dict[int, _Stay] = {}
        self._seen = BlockStays()

    def taken(self, block: int) -> None:
        """A free block was taken: what it held is gone, and another stay begins."""
        stay = self._stays.pop(block, None)
        if stay is not None:
            now, used = self._clock(), stay.used
            self._seen.lifetimes.append(now - stay.since)
            self._seen.idle.append(now - (used[-1] if used else stay.since))
            self._seen.reuse_gaps.extend(later - earlier for earlier, later in pairwise(used))
        if self._draw() < self._share:
            self._stays[block] = _Stay(self._clock())

    def used_again(self, block: int) -> None:
        """A prefix hit found the block."""
        stay = self._stays.get(block)
        if stay is not None:
            stay.used.append(self._clock())

    def forget(self) -> None:
        """All contents were given up on purpose: that says nothing of how long they would have stayed."""
        self._stays.clear()

    def drain(self) -> BlockStays:
        """What was seen since the last call."""
        seen, self._seen = self._seen, BlockStays()
        return seen
