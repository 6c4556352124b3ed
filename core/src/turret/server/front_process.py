"""A front end in a process of its own, seen from the main process.

Owns: launching it, its channel, how it ended. Knows nothing of what it serves.

The child is a fresh interpreter, as an engine's is (docs/decisions/0004). It inherits the listening socket and one end
of a pair; the end of that stream is its death.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys

from turret.messages.control import Boot, ToMain
from turret.transport.control import ControlChannel

__all__ = ["FrontProcess"]

REAP_SECONDS = 5.0
"""From the end of the channel until the exit status must be known."""


class FrontProcess:
    """One launch of the front in place `place`; `serial` tells it from every other launch."""

    def __init__(self, place: int, serial: int) -> None:
        self.place = place
        self.serial = serial
        self.ready = False
        self.channel: ControlChannel[ToMain]
        self._process: subprocess.Popen[bytes]

    @property
    def name(self) -> str:
        """What engines know it by."""
        return f"front-{self.place}.{self.serial}"

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    async def launch(self, boot: Boot, listening: socket.socket) -> None:
        """Start the child; it inherits `listening`."""
        ours, theirs = socket.socketpair()
        fds = (theirs.fileno(), listening.fileno())
        # Signals are ignored before anything slow is imported: Ctrl-C reaches the whole group.
        code = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); "
            f"sys.path[:] = {sys.path!r}; from turret.server.front_child import main; main{fds!r}"
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, "turret-front"], stdin=subprocess.DEVNULL, pass_fds=fds
            )
        finally:
            theirs.close()
        self.channel = await ControlChannel.open(ours, ToMain)
        self.channel.send(boot)

    async def end(self) -> str:
        """The channel has ended: reap the child, by force if need be; how it ended, as a sentence."""
        self.channel.close()
        try:
            code = await asyncio.to_thread(self._process.wait, REAP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            code = await asyncio.to_thread(self._process.wait)
        if code >= 0:
            return f"exited with status {code}"
        return f"was killed by {signal.Signals(-code).name}"

    def kill(self) -> None:
        """End it now."""
        if self._process.poll() is None:
            self._process.kill()
