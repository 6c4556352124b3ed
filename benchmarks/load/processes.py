"""Servers as processes of their own, and what they cost: CPU time and memory, of a process and its children.

Owns: starting, finding the URL, ending. Knows nothing of loads.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["ServerProcess", "cpu_seconds", "family", "resident_bytes", "serving"]

_READY = re.compile(r"(http://127\.0\.0\.1:\d+)")
START_SECONDS = 180.0
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ServerProcess:
    """A server that is up; `url` is where. Its log is kept for the case that something goes wrong."""

    def __init__(self, process: subprocess.Popen[str], url: str, lines: list[str]) -> None:
        self.process = process
        self.url = url
        self.lines = lines

    @property
    def pid(self) -> int:
        """The process that speaks HTTP."""
        return self.process.pid


@contextlib.contextmanager
def serving(
    command: Sequence[str], mark: str = "ready", environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Start `command`, wait for a line that holds `mark` and a loopback URL, end it with SIGTERM at the end."""
    where = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1]), **(environment or {})}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=where)
    lines: list[str] = []
    threading.Thread(target=_keep_reading, args=(process, lines), daemon=True).start()
    try:
        yield ServerProcess(process, _wait_for_url(process, lines, mark), lines)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _keep_reading(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip())


def _wait_for_url(process: subprocess.Popen[str], lines: list[str], mark: str) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for line in list(lines):
            if mark in line and (found := _READY.search(line)):
                return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.05)
    sys.exit("the server did not start:\n" + "\n".join(lines[-40:]))


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += family(int(child))
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU time so far, user and system."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICK


def resident_bytes(pids: Sequence[int]) -> int:
    """Memory that belongs to the processes alone or is shared between them, counted once for each."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE for pid in pids)
