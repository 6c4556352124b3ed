"""A client's link to an engine in a thread of the same process.

Owns: the thread and the two ways across. Knows nothing of streams.

Frames go as objects, with nothing encoded: a queue and a bell in, `call_soon_threadsafe` out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import threading
from collections import deque
from collections.abc import Callable

from turret.engine.loop import EngineLoop
from turret.engine.ports import Progress, Receiver
from turret.engine.status import Factory
from turret.errors import EngineDeadError
from turret.messages import ClientFrame, EngineFrame, EngineReady, Shutdown

__all__ = ["ThreadLink"]

logger = logging.getLogger(__name__)


class ThreadLink:
    """Runs `factory(config, progress)` and its loop in a thread. One start only."""

    def __init__(self, factory: Factory, config: str) -> None:
        self._factory = factory
        self._config = config
        self._thread: threading.Thread | None = None
        self._door: _QueueDoor | None = None  # None before the start and after the end
        self._ended = asyncio.Event()

    async def start(self, receiver: Receiver, progress: Progress | None) -> EngineReady:
        """Build the engine in its thread; raises what the factory raised."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[EngineReady] = loop.create_future()
        self._door = door = _QueueDoor(loop, receiver)

        def report(stage: str, fraction: float) -> None:
            if progress is not None:
                _call(loop, progress, stage, fraction)

        def body() -> None:
            reason: str | None = None
            try:
                core = self._factory(self._config, report)
                _call(loop, _settle, ready, core.ready)
                reason = EngineLoop(core, door).run()
            except Exception as error:  # the factory's: the loop lets none through
                _call(loop, _settle, ready, error)
            _call(loop, self._on_end, receiver, reason)

        self._thread = threading.Thread(target=body, name="turret-engine", daemon=True)
        self._thread.start()
        return await ready

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; raises `EngineDeadError` when the thread has ended."""
        if self._door is None:
            raise EngineDeadError("the engine's thread is not there")
        self._door.put(frame)

    async def stop(self, timeout: float) -> None:
        """Tell the engine to end and wait; a thread cannot be forced, so one that hangs is left behind."""
        if self._thread is None or self._door is None:
            return
        self._door.put(Shutdown())
        if timeout > 0:
            try:
                await asyncio.wait_for(self._ended.wait(), timeout)
                self._thread.join()
            except TimeoutError:
                logger.error("the engine's thread did not end within %g s and is left behind", timeout)

    def _on_end(self, receiver: Receiver, reason: str | None) -> None:
        if self._door is not None:
            self._door.close()
            self._door = None
        self._ended.set()
        receiver.on_dead(reason or "the engine was shut down")


class _QueueDoor:
    """The engine loop's door in a process of one: there is one client, with an empty name.

    The bell is a pair of sockets rather than a condition, so that the engine can wait for its worker as well.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, receiver: Receiver) -> None:
        self._loop = loop
        self._receiver = receiver
        self._inbox: deque[ClientFrame] = deque()
        self._bell, self._button = socket.socketpair()
        self._bell.setblocking(False)
        self._button.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)
        self._watched = -1

    def put(self, frame: ClientFrame) -> None:
        """Called by the client."""
        self._inbox.append(frame)
        with contextlib.suppress(BlockingIOError):  # a full pipe rings already
            self._button.send(b"!")

    def watch(self, descriptor: int) -> None:
        self._poll.register(descriptor, select.POLLIN)
        self._watched = descriptor

    def wait(self, timeout: float | None = None) -> bool:
        if self._inbox:
            return False
        ready = self._poll.poll(None if timeout is None else max(0, int(timeout * 1000)))
        # Silence the bell before the inbox is read: what comes later rings again.
        with contextlib.suppress(BlockingIOError):
            while self._bell.recv(4096):
                pass
        return any(descriptor == self._watched for descriptor, _ in ready)

    def receive(self) -> tuple[bytes, ClientFrame] | None:
        return (b"", self._inbox.popleft()) if self._inbox else None

    def send(self, client: bytes, frame: EngineFrame) -> bool:
        return _call(self._loop, self._receiver.on_frame, frame)

    def close(self) -> None:
        self._bell.close()
        self._button.close()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> bool:
    """Call in the client's event loop; False when that is closed: nobody listens any more."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


def _settle(ready: asyncio.Future[EngineReady], outcome: EngineReady | Exception) -> None:
    if ready.done():
        return
    if isinstance(outcome, Exception):
        ready.set_exception(outcome)
    else:
        ready.set_result(outcome)
