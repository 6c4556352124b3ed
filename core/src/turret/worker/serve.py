"""The worker's process, seen from inside.

Owns: signals, the watch over the parent, the order of start and end. Knows nothing of what the entry builds.
"""

from __future__ import annotations

import importlib
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable

from turret.contracts import Worker
from turret.errors import ConfigError, EngineDeadError, TurretError
from turret.worker.wire import (
    Allocate,
    Boot,
    Call,
    Channel,
    Dying,
    Failed,
    Loading,
    Reply,
    Started,
    Step,
    Stepped,
    Stop,
    ToWorker,
)

__all__ = ["main"]

logger = logging.getLogger(__name__)

Inbox = queue.SimpleQueue[ToWorker]


def main(fd: int) -> None:
    """Run one worker; returns when it was told to stop, exits with status 1 when it failed or lost its parent."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides when we end
    os.set_inheritable(fd, False)
    channel: Channel[ToWorker] = Channel(socket.socket(fileno=fd), ToWorker)
    inbox: Inbox = queue.SimpleQueue()
    threading.Thread(target=_read, args=(channel, inbox), name="parent-watch", daemon=True).start()
    boot = inbox.get()
    assert isinstance(boot, Boot)
    try:
        worker = _entry(boot.entry)(boot.argument)
        facts = worker.start(lambda stage, fraction: channel.send(Loading(stage, fraction)))
    except Exception as error:
        if not isinstance(error, TurretError):
            logger.critical("the worker failed to start", exc_info=error)
        channel.send(Failed.of(error))
        sys.exit(1)
    channel.send(Started(facts))
    ending = threading.Event()
    threading.Thread(target=_report, args=(worker, channel, ending), name="results", daemon=True).start()
    try:
        _obey(worker, channel, inbox)
    except EngineDeadError as error:
        channel.send(Dying(str(error)))
        sys.exit(1)
    ending.set()
    worker.shutdown()


def _obey(worker: Worker, channel: Channel[ToWorker], inbox: Inbox) -> None:
    """One frame after another until told to stop."""
    while not isinstance(frame := inbox.get(), Stop):
        if isinstance(frame, Step):
            worker.submit(frame.plan)
            continue
        try:
            value = None
            if isinstance(frame, Allocate):
                worker.allocate(frame.config)
            elif isinstance(frame, Call):
                value = worker.call(frame.method, frame.args)
            channel.send(Reply(value))
        except EngineDeadError:
            raise
        except Exception as error:
            channel.send(Failed.of(error))


def _report(worker: Worker, channel: Channel[ToWorker], ending: threading.Event) -> None:
    """Send each result as it comes; a worker that dies before it was told to stop ends the process."""
    try:
        while (result := worker.collect()) is not None:
            channel.send(Stepped(result))
    except OSError:
        os._exit(1)  # the parent is gone
    except EngineDeadError as error:
        if not ending.is_set():
            channel.send(Dying(str(error)))
            os._exit(1)


def _read(channel: Channel[ToWorker], inbox: Inbox) -> None:
    """Frames into the inbox; without a parent, end at once, wherever the main thread is."""
    try:
        while True:
            frame = channel.receive()
            assert frame is not None
            inbox.put(frame)
    except Exception as error:
        if not isinstance(error, EOFError):
            logger.critical("the worker cannot read its parent", exc_info=error)
        os._exit(1)


def _entry(path: str) -> Callable[[str], Worker]:
    module, colon, name = path.partition(":")
    if not colon:
        raise ConfigError(f"a worker's entry is named package.module:function, got {path!r}")
    found = getattr(importlib.import_module(module), name, None)
    if not callable(found):
        raise ConfigError(f"{module} has no function {name!r} to build a worker with")
    return found  # type: ignore[no-any-return]
