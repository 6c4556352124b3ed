"""The process that compiles grammars, seen from inside.

Owns: the backends once they are open, and a child of its own for each grammar. Knows no backend.

A compiler in C++ or Rust cannot be interrupted and may run out of memory. So this process loads everything once and
then forks: the fork has a bound on its memory and is killed at its deadline, and whatever happens to it happens to one
request. There is one thread here, which is what makes forking sound.
"""

from __future__ import annotations

import importlib
import os
import resource
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from turret.contracts import GrammarCompiler, StructuredBackend, Vocabulary
from turret.errors import RequestError, TurretError
from turret.grammars.trial import check_grammar
from turret.grammars.wire import Boot, Job, Made, Ready, Refused, ToCompiler, encoded, receive, send

__all__ = ["Compiler", "main"]


@dataclass(slots=True)
class _Running:
    job: Job
    pid: int
    deadline: float
    answer: bytearray = field(default_factory=bytearray)


def main(fd: int) -> None:
    """Serve until the other end is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides when we end
    os.set_inheritable(fd, False)
    control = socket.socket(fileno=fd)
    boot = receive(control, ToCompiler)
    if isinstance(boot, Boot):
        Compiler(control, boot).serve()


class Compiler:
    """Jobs in, grammars out, `at_once` at a time."""

    def __init__(self, control: socket.socket, boot: Boot) -> None:
        self._control = control
        self._limits = boot.limits
        self._vocabulary = Vocabulary(boot.tokens, tuple(boot.stop_ids))
        self._compilers: dict[str, GrammarCompiler] = {}
        self._backends: dict[str, StructuredBackend] = {}
        self._waiting: deque[Job] = deque()
        self._running: dict[int, _Running] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        send(control, self._open(boot))

    def serve(self) -> None:
        """Until the control socket closes; what still runs is killed."""
        while True:
            soonest = min((run.deadline for run in self._running.values()), default=None)
            timeout = None if soonest is None else max(0.0, soonest - time.monotonic())
            for key, _ in self._selector.select(timeout):
                if key.fileobj is not self._control:
                    self._read(key.fd)
                    continue
                job = receive(self._control, ToCompiler)
                if not isinstance(job, Job):
                    for run in self._running.values():
                        os.kill(run.pid, signal.SIGKILL)
                    return
                self._waiting.append(job)
            for fd, run in list(self._running.items()):
                if time.monotonic() > run.deadline:
                    os.kill(run.pid, signal.SIGKILL)
                    self._end(fd, f"it takes more than {self._limits.seconds:g} s to compile")
            while self._waiting and len(self._running) < self._limits.at_once:
                self._start(self._waiting.popleft())

    def _open(self, boot: Boot) -> Ready:
        module, _, name = boot.entry.partition(":")
        found: Mapping[str, StructuredBackend] = getattr(importlib.import_module(module), name)(boot.argument)
        faults = {}
        for name, backend in found.items():
            try:
                self._compilers[name] = backend.open(self._vocabulary)
                self._backends[name] = backend
            except Exception as error:  # one that cannot be loaded leaves the others
                faults[name] = str(error) if isinstance(error, TurretError) else f"{type(error).__name__}: {error}"
        return Ready(list(self._compilers), faults)

    def _start(self, job: Job) -> None:
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(ours)
                self._control.close()
                self._bound()
                with os.fdopen(theirs, "wb") as out:
                    out.write(encoded(self._compile(job)))
                status = 0
            finally:
                os._exit(status)
        os.close(theirs)
        self._running[ours] = _Running(job, pid, time.monotonic() + self._limits.seconds)
        self._selector.register(ours, selectors.EVENT_READ)

    def _bound(self) -> None:
        """Memory beyond what is mapped already, and time on the processor should nobody be left to kill this."""
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        limit = mapped + self._limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        seconds = int(self._limits.seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)  # what a library prints of a request is no line of ours

    def _read(self, fd: int) -> None:
        run = self._running[fd]
        piece = os.read(fd, 1 << 20)
        if piece:
            run.answer += piece
            return
        self._end(fd, None)

    def _end(self, fd: int, reason: str | None) -> None:
        run = self._running.pop(fd)
        self._selector.unregister(fd)
        os.close(fd)
        _, status = os.waitpid(run.pid, 0)
        if reason is None and status == 0 and run.answer:
            self._control.sendall(run.answer)
            return
        if reason is None:
            reason = f"it takes more than {self._limits.memory_bytes >> 20} MiB, or more than its compiler can bear"
        send(self._control, Refused(run.job.job_id, reason, lasting=False))

    def _compile(self, job: Job) -> Made | Refused:
        """In the fork: the first backend that can."""
        reasons = []
        for name in job.backends:
            if name not in self._compilers:
                continue
            try:
                verdict = self._backends[name].supports(job.spec)
                if not verdict.ok:
                    raise RequestError("; ".join(verdict.reasons))
                compiled = self._compilers[name].compile(job.spec)
                if len(compiled) > self._limits.size_bytes:
                    raise RequestError(f"it comes to {len(compiled)} bytes, more than {self._limits.size_bytes}")
                check_grammar(self._compilers[name].restore(compiled), self._vocabulary, self._limits)
                return Made(job.job_id, name, compiled)
            except (MemoryError, RecursionError):
                reasons.append(f"{name}: it takes more memory than a grammar may")
            except Exception as error:  # whatever a library raises, it is about this request
                reasons.append(f"{name}: {_one_line(error)}")
        return Refused(job.job_id, "; ".join(reasons) or "no backend is left")


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "..."

