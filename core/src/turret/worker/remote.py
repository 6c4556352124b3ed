"""`RemoteWorker`: the contract `worker` over a process of its own, seen from the engine.

Owns: launching the process, noticing its death, ending it. Knows nothing of torch or of what the worker is built from:
`WorkerSpawn.entry` names the function that builds it there, from one JSON text.

The child is a fresh interpreter that imports nothing of the parent's script, and only msgpack frames cross: no pickle.
The end of the stream is the child's death, so nothing polls.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turret.errors import EngineDeadError, EngineError
from turret.messages import KVCacheConfig, StepPlan, StepResult, WorkerFacts
from turret.worker.wire import (
    Allocate,
    Boot,
    Call,
    Channel,
    Dying,
    Failed,
    FromWorker,
    Loading,
    Reply,
    Started,
    Step,
    Stepped,
    Stop,
    ToWorker,
)

__all__ = ["RemoteWorker", "WorkerSpawn"]

REAP_SECONDS = 1.0
"""From the end of the stream until the exit status must be known."""


@dataclass(frozen=True, slots=True)
class WorkerSpawn:
    """`entry` is `package.module:function`; it is called in the child with `argument` and returns an unstarted
    `Worker`. `stop_seconds` is how long the child may take to end before it is killed."""

    entry: str
    argument: str
    stop_seconds: float = 30.0


class RemoteWorker:
    """A worker process behind the `Worker` contract. Call it from one thread at a time."""

    def __init__(self, spawn: WorkerSpawn) -> None:
        self._spawn = spawn
        self._channel: Channel[FromWorker] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._results: deque[StepResult] = deque()
        self._dead: str | None = None
        self._last_words = ""
        self._finalizer: weakref.finalize[..., RemoteWorker] | None = None

    @property
    def pid(self) -> int:
        """The child's process id."""
        if self._process is None:
            raise EngineError("the worker was not started")
        return self._process.pid

    def fileno(self) -> int:
        """A descriptor that becomes readable when a result came or the child died."""
        return self._open().fileno()

    def start(self, progress: Callable[[str, float], None] | None = None) -> WorkerFacts:
        """Launch the child and wait until its model is loaded; raises what stopped it."""
        if self._process is not None:
            raise EngineError("the worker was started already")
        self._launch()
        self._send(Boot(self._spawn.entry, self._spawn.argument))
        while True:
            frame = self._answer()
            if isinstance(frame, Started):
                return frame.facts
            if isinstance(frame, Loading) and progress is not None:
                progress(frame.stage, frame.fraction)

    def allocate(self, config: KVCacheConfig) -> None:
        """Make the KV cache in the child."""
        self._send(Allocate(config))
        self._reply()

    def submit(self, plan: StepPlan) -> None:
        """Send a step; returns at once."""
        self._send(Step(plan))

    def collect(self, timeout: float | None = None) -> StepResult | None:
        """The oldest uncollected result; raises `EngineDeadError` the moment the child is gone."""
        while not self._results:
            if self._answer(timeout) is None:
                return None
        return self._results.popleft()

    def call(self, method: str, args: list[Any]) -> Any:
        """A named method in the child, after the steps already submitted."""
        if method == "pid":
            return self.pid
        self._send(Call(method, args))
        return self._reply()

    def shutdown(self) -> None:
        """Let the child finish its step and end, or kill it; safe to repeat."""
        process, channel = self._process, self._channel
        if process is None or channel is None:
            self._dead = self._dead or "the worker was shut down"
            return
        if self._dead is None:
            self._dead = "the worker was shut down"
            try:
                channel.send(Stop())
                process.wait(self._spawn.stop_seconds)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
        if self._finalizer is not None:
            self._finalizer()
        self._channel = None

    def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        code = f"import sys; sys.path[:] = {sys.path!r}; from turret.worker.serve import main; main({theirs.fileno()})"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, "turret-worker"], stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),))
        finally:
            theirs.close()
        self._channel = Channel(ours, FromWorker)
        # Also runs when the interpreter exits: a parent that fails never leaves a worker behind.
        self._finalizer = weakref.finalize(self, _end, self._process, ours)

    def _open(self) -> Channel[FromWorker]:
        if self._dead is not None:
            raise EngineDeadError(self._dead)
        if self._channel is None:
            raise EngineError("the worker was not started")
        return self._channel

    def _send(self, frame: ToWorker) -> None:
        try:
            self._open().send(frame)
        except OSError:
            self._answer_until_end()

    def _reply(self) -> Any:
        while True:
            frame = self._answer()
            if isinstance(frame, Reply):
                return frame.value

    def _answer(self, timeout: float | None = None) -> FromWorker | None:
        """The next frame, results kept aside; raises what the child reports and its death."""
        try:
            frame = self._open().receive(timeout)
        except EOFError:
            raise EngineDeadError(self._bury()) from None
        if isinstance(frame, Stepped):
            self._results.append(frame.result)
        elif isinstance(frame, Failed):
            raise frame.exception()
        elif isinstance(frame, Dying):
            self._last_words = frame.message
        return frame

    def _answer_until_end(self) -> None:
        """The child is gone: read what it still said, then raise its death."""
        while True:
            self._answer()

    def _bury(self) -> str:
        assert self._process is not None
        how = _how_it_ended(self._process)
        self._dead = f"{self._last_words} ({how})" if self._last_words else how
        if self._finalizer is not None:
            self._finalizer()
        return self._dead


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(REAP_SECONDS)
    except subprocess.TimeoutExpired:
        return "the worker process closed its stream and hangs"
    if code >= 0:
        return f"the worker process exited with status {code}"
    hint = " (the kernel does this when memory runs out)" if -code == signal.SIGKILL else ""
    return f"the worker process was killed by {signal.Signals(-code).name}{hint}"


def _end(process: subprocess.Popen[bytes], end: socket.socket) -> None:
    end.close()
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
