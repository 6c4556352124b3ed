"""What the machine did meanwhile: CPU of other processes, memory of ours. Linux, from /proc.

Owns: the reading of /proc. Knows no engine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["QUIET", "Watch", "resident_bytes", "wait_for_quiet", "watched"]

QUIET = 0.2
"""CPUs that others may use; a figure taken while they used more is not to be trusted."""

_TICK = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(slots=True)
class Watch:
    """What others used, in CPUs; set when the watch ends."""

    others: float = 0.0


@contextmanager
def watched() -> Iterator[Watch]:
    """Counts the CPU time of processes that are not descendants of this one."""
    watch, busy, own, began = Watch(), _busy(), _own(), time.perf_counter()
    yield watch
    seconds = max(time.perf_counter() - began, 1e-9)
    watch.others = round(max(0.0, (_busy() - busy - (_own() - own)) / seconds), 2)


def wait_for_quiet(longest: float) -> bool:
    """Until others use little, twice in a row; False after `longest` seconds."""
    deadline, calm = time.monotonic() + longest, 0
    while time.monotonic() < deadline:
        with watched() as watch:
            time.sleep(0.4)
        calm = calm + 1 if watch.others < QUIET / 2 else 0
        if calm == 2:
            return True
    return False


def resident_bytes(root: int) -> int:
    """Resident memory of a process and its descendants."""
    total = 0
    for pid in _tree(root):
        try:
            fields = (_PROC / str(pid) / "statm").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        total += int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def _busy() -> float:
    """CPU seconds that the machine has worked."""
    user, nice, system, _, _, irq, softirq, steal = (
        int(word) for word in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / _TICK


def _own() -> float:
    """CPU seconds of this process and its descendants, those that ended included."""
    return sum(_spent(pid) for pid in _tree(os.getpid()))


def _tree(root: int) -> list[int]:
    found, place = [root], 0
    while place < len(found):
        found += _children(found[place])
        place += 1
    return found


def _children(pid: int) -> list[int]:
    try:
        tasks = list((_PROC / str(pid) / "task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []  # it ended meanwhile


def _spent(pid: int) -> float:
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / _TICK
