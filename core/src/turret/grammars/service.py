"""The compiling process from outside, and what it made.

Owns: the process, its restart, the cache (what was made, by size; what was refused, by number) and who waits. Knows no
backend and no HTTP.

The process starts with the first request that needs it: it takes seconds and some hundred megabytes, and most servers
never do. Any thread may ask; answers come on a thread of this service's own.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import subprocess
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from turret.contracts import Vocabulary
from turret.errors import CapacityError, RequestError, TurretError
from turret.grammars.limits import CompileLimits
from turret.grammars.wire import Boot, FromCompiler, Job, Made, Ready, Refused, receive, send
from turret.structured import GrammarSpec

__all__ = ["CompiledGrammar", "GrammarLaunch", "GrammarService"]

logger = logging.getLogger(__name__)

_REFUSALS_KEPT = 512


@dataclass(frozen=True, slots=True)
class CompiledGrammar:
    """What `backend` made of the spec that `key` names."""

    backend: str
    key: str
    compiled: bytes


@dataclass(frozen=True, slots=True)
class GrammarLaunch:
    """How the compiling process is started: `entry` and `argument` find the backends, `backends` is their order of
    preference, `vocabulary` makes the vocabulary when it is needed. `started` is called on each start."""

    entry: str
    argument: str
    backends: tuple[str, ...]
    vocabulary: Callable[[], Vocabulary]
    limits: CompileLimits = field(default_factory=CompileLimits)
    started: Callable[[], None] = lambda: None


class _Process:
    """One run of the process: it lives until it dies, then another takes its place."""

    def __init__(self, launch: GrammarLaunch, vocabulary: Vocabulary) -> None:
        ours, theirs = socket.socketpair()
        path, fd = sys.path, theirs.fileno()
        code = f"import sys; sys.path[:] = {path!r}; from turret.grammars.child import main; main({fd})"
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, "turret-grammars"], stdin=subprocess.DEVNULL, pass_fds=(fd,))
        finally:
            theirs.close()
        self.end = ours
        self.close = weakref.finalize(self, _stop, self.process, ours)
        boot = Boot(launch.entry, launch.argument, list(vocabulary.tokens), list(vocabulary.stop_ids), launch.limits)
        self._sending = threading.Lock()
        self.send(boot)

    def send(self, frame: Boot | Job) -> None:
        """Raises OSError when the process is gone."""
        with self._sending:
            send(self.end, frame)


class GrammarService:
    """Specs in, compiled grammars out. `close` it."""

    def __init__(self, launch: GrammarLaunch) -> None:
        self._launch = launch
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._made: OrderedDict[str, CompiledGrammar] = OrderedDict()
        self._made_bytes = 0
        self._refused: OrderedDict[str, str] = OrderedDict()
        self._waiting: dict[int, tuple[str, Future[CompiledGrammar]]] = {}
        self._asked: dict[str, Future[CompiledGrammar]] = {}
        self._ids = itertools.count()
        self._process: _Process | None = None
        self._closed = False

    @property
    def available(self) -> bool:
        """Whether there is any backend to ask."""
        return bool(self._launch.backends)

    def known(self, spec: GrammarSpec) -> CompiledGrammar | None:
        """What was made of this spec before, if it is still kept; raises `RequestError` if it was refused."""
        key = spec.key
        with self._lock:
            if (reason := self._refused.get(key)) is not None:
                raise RequestError(reason)
            found = self._made.get(key)
            if found is not None:
                self._made.move_to_end(key)
            return found

    def compile(self, spec: GrammarSpec) -> Future[CompiledGrammar]:
        """A future that ends with the grammar, `RequestError` (one sentence, without a field) or `CapacityError`.

        The first call starts the process and blocks while the vocabulary is made: call it from a thread that may wait.
        """
        key = spec.key
        process = self._running()
        with self._lock:
            pending = self._asked.get(key)
            if pending is not None:
                return pending
            if len(self._waiting) >= self._launch.limits.waiting:
                raise CapacityError("too many grammars wait to be compiled; try again")
            future: Future[CompiledGrammar] = Future()
            job_id = next(self._ids)
            self._waiting[job_id] = (key, future)
            self._asked[key] = future
        try:
            process.send(Job(job_id, spec, list(self._launch.backends)))
        except OSError:
            self._lost(process)
        return future

    def close(self) -> None:
        """End the process; safe to repeat."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if process is not None:
            process.close()

    def _running(self) -> _Process:
        with self._starting:
            if self._closed:
                raise CapacityError("the server is shutting down")
            if self._process is None:
                process = _Process(self._launch, self._launch.vocabulary())
                threading.Thread(target=_listen, args=(weakref.ref(self), process), name="turret-grammars",
                                 daemon=True).start()
                self._process = process
                self._launch.started()
            return self._process

    def _heard(self, frame: Ready | Made | Refused) -> None:
        if isinstance(frame, Ready):
            for name, fault in frame.faults.items():
                logger.warning("the structured backend %s cannot be used: %s", name, fault)
            return
        with self._lock:
            key, future = self._waiting.pop(frame.job_id)
            self._asked.pop(key, None)
            if isinstance(frame, Made):
                made = CompiledGrammar(frame.backend, key, frame.compiled)
                self._keep(made)
            elif frame.lasting:
                self._refused[key] = frame.reason
                if len(self._refused) > _REFUSALS_KEPT:
                    self._refused.popitem(last=False)
        if isinstance(frame, Made):
            future.set_result(made)
        else:
            future.set_exception(RequestError(frame.reason))

    def _keep(self, made: CompiledGrammar) -> None:
        self._made[made.key] = made
        self._made_bytes += len(made.compiled)
        while self._made_bytes > self._launch.limits.cache_bytes and len(self._made) > 1:
            _, oldest = self._made.popitem(last=False)
            self._made_bytes -= len(oldest.compiled)

    def _lost(self, process: _Process) -> None:
        """The process is gone: whoever waits is told, and the next request starts another."""
        with self._lock:
            if self._process is not process:
                return
            self._process = None
            waiting, self._waiting = self._waiting, {}
            self._asked = {}
        ended_itself = process.close.alive
        process.close()
        if ended_itself:
            logger.warning("the process that compiles grammars ended; the next request starts another")
        error: TurretError = CapacityError("the process that compiles grammars ended; try again")
        for _, future in waiting.values():
            future.set_exception(error)


def _listen(owner: weakref.ref[GrammarService], process: _Process) -> None:
    """The service's thread: holds the process, not the service, so that an abandoned service ends both."""
    while True:
        frame = receive(process.end, FromCompiler)
        service = owner()
        if service is None:
            process.close()
            return
        if frame is None:
            service._lost(process)
            return
        service._heard(frame)
        del service


def _stop(process: subprocess.Popen[bytes], end: socket.socket) -> None:
    """Close the channel, at which the process ends; wait for it a moment."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
    try:
        process.wait(2.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
