"""The engine's process, seen from its parent.

Owns: launching the process, what it says while it starts, noticing its death, ending it. Knows nothing of requests.

The child is a fresh interpreter that imports nothing of the parent's script, so a script needs no main guard, and
nothing is pickled. Two pipes join them: the boot pipe carries one JSON message and then stays open, so that the child
notices its parent's death; the status pipe carries one JSON object a line, and its end is the child's death.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref

import msgspec

from turret.engine.status import Boot, Status
from turret.errors import EngineError
from turret.transport import PrivateEndpoint

__all__ = ["EngineProcess"]

REAP_TIMEOUT = 1.0
"""Seconds from the end of the status pipe until the exit status must be known."""


class EngineProcess:
    """One engine in a process of its own. `launch` returns at once; the status pipe tells the rest.

    `factory` is the dotted path of a `Factory`; `config` its JSON.
    """

    def __init__(self, factory: str, config: str) -> None:
        self._factory = factory
        self._config = config
        self._endpoint = PrivateEndpoint()
        self._process: subprocess.Popen[bytes] | None = None
        self._boot_fd = self._status_fd = -1
        self._partial = b""
        self._decoder = msgspec.json.Decoder(Status)
        self._finalizer: weakref.finalize[..., EngineProcess] = weakref.finalize(self, self._endpoint.remove)

    @property
    def address(self) -> str:
        """Where the engine listens once it is up."""
        return self._endpoint.address

    @property
    def pid(self) -> int:
        """The child's process id; `EngineError` before `launch`."""
        return self._child.pid

    @property
    def status_fd(self) -> int:
        """Readable when `read_status` has something to give."""
        return self._status_fd

    def launch(self) -> None:
        """Start the child. Raises `EngineError` when called twice."""
        if self._process is not None:
            raise EngineError("the engine process was launched already")
        boot_read, self._boot_fd = os.pipe()
        self._status_fd, status_write = os.pipe()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from turret.engine.child import main; main({boot_read}, {status_write})"
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, "turret-engine"],
                stdin=subprocess.DEVNULL,
                pass_fds=(boot_read, status_write),
            )
        finally:
            os.close(boot_read)
            os.close(status_write)
        os.set_blocking(self._status_fd, False)
        self._finalizer.detach()
        # Also runs when the interpreter exits: a parent that fails never leaves an engine behind.
        fds = (self._boot_fd, self._status_fd)
        self._finalizer = weakref.finalize(self, _end, self._process, self._endpoint, fds, os.getpid())
        boot = Boot(self._factory, self._config, self.address, str(self._endpoint.directory))
        _write_all(self._boot_fd, msgspec.json.encode(boot) + b"\n")

    def read_status(self) -> list[Status] | None:
        """What the child said since the last call; None once it is dead and has said all."""
        pieces = [self._partial]
        try:
            while piece := os.read(self._status_fd, 65536):
                pieces.append(piece)
        except BlockingIOError:
            ended = False
        else:
            ended = True
        *lines, self._partial = b"".join(pieces).split(b"\n")
        if ended and not lines:
            return None
        return [self._decoder.decode(line) for line in lines]

    def death(self) -> str:
        """How the child ended, as a sentence. Call it after `read_status` gave None."""
        try:
            code = self._child.wait(REAP_TIMEOUT)
        except subprocess.TimeoutExpired:
            return "the engine process closed its pipe and hangs"
        if code >= 0:
            return f"the engine process exited with status {code}"
        name = signal.Signals(-code).name
        hint = " (the kernel does this when memory runs out)" if -code == signal.SIGKILL else ""
        return f"the engine process was killed by {name}{hint}"

    @property
    def launched(self) -> bool:
        """True after `launch`."""
        return self._process is not None

    @property
    def running(self) -> bool:
        """True while the child lives."""
        return self._process is not None and self._process.poll() is None

    def end(self) -> None:
        """Kill the child if it lives, reap it, release pipes and directory; safe to repeat."""
        self._finalizer()

    @property
    def _child(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise EngineError("the engine process was not launched yet")
        return self._process


def _end(process: subprocess.Popen[bytes], endpoint: PrivateEndpoint, fds: tuple[int, int], owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the parent that exits must not take the parent's engine along
    if process.poll() is None:
        process.kill()
    process.wait()
    for fd in fds:
        os.close(fd)
    endpoint.remove()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view):]
    except BrokenPipeError:
        return  # the child died before it read its boot message: the status pipe ends and tells so
