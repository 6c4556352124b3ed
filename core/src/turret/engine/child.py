"""The engine's process, seen from inside.

Owns: signals, the watch over the parent, the order of start and end. Knows nothing of what the factory builds.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import threading
import time

import msgspec

from turret.engine.loop import EngineLoop
from turret.engine.status import Boot, Loading, StartFailure, Status, resolve_factory
from turret.errors import TurretError
from turret.messages import EngineFailure
from turret.transport import EngineSocket

__all__ = ["main"]

PROGRESS_INTERVAL = 0.05
"""Seconds between two progress lines of one stage."""

logger = logging.getLogger(__name__)


def main(boot_fd: int, status_fd: int) -> None:
    """Run an engine; returns when it was told to stop, exits with status 1 when it failed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides when we end
    for fd in (boot_fd, status_fd):
        os.set_inheritable(fd, False)
    boot = msgspec.json.decode(_read_line(boot_fd), type=Boot)
    threading.Thread(target=_outlive_nobody, args=(boot_fd, boot.directory), name="parent-watch", daemon=True).start()
    sys.exit(0 if _serve(boot, _StatusPipe(status_fd)) else 1)


def _serve(boot: Boot, status: _StatusPipe) -> bool:
    try:
        core = resolve_factory(boot.factory)(boot.config, status.progress)
        socket = EngineSocket(boot.address)
    except Exception as error:
        if not isinstance(error, TurretError):
            logger.critical("the engine failed to start", exc_info=error)
        status.send(StartFailure.of(error))
        return False
    gc.collect()
    gc.freeze()  # what was loaded stays: collections need not look at it again
    status.send(core.ready)
    reason = EngineLoop(core, socket).run()
    if reason is not None:
        status.send(EngineFailure(message=reason))
    socket.close()
    return reason is None


class _StatusPipe:
    """The child's end of the status pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._encoder = msgspec.json.Encoder()
        self._stage = ""
        self._sent_at = 0.0

    def send(self, status: Status) -> None:
        data = memoryview(self._encoder.encode(status) + b"\n")
        while data:
            data = data[os.write(self._fd, data):]

    def progress(self, stage: str, fraction: float) -> None:
        now = time.monotonic()
        if stage == self._stage and fraction < 1 and now - self._sent_at < PROGRESS_INTERVAL:
            return
        self._stage, self._sent_at = stage, now
        self.send(Loading(stage, fraction))


def _read_line(fd: int) -> bytes:
    pieces = []
    while piece := os.read(fd, 65536):
        pieces.append(piece)
        if piece.endswith(b"\n"):
            return b"".join(pieces)
    raise SystemExit("the parent went away before it said what to build")


def _outlive_nobody(boot_fd: int, directory: str) -> None:
    """Block until the parent is gone, then end at once, wherever the main thread is."""
    os.read(boot_fd, 1)
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)
