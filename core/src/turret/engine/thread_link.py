"""A client's link to an engine in a thread of the same process.

Owns: the thread and the two ways across. Knows nothing of streams.

Frames go as objects, with nothing encoded: a queue in, `call_soon_threadsafe` out.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
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
        self._inbox: queue.SimpleQueue[ClientFrame] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()
        self._alive = False

    async def start(self, receiver: Receiver, progress: Progress | None) -> EngineReady:
        """Build the engine in its thread; raises what the factory raised."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[EngineReady] = loop.create_future()
        door = _QueueDoor(self._inbox, loop, receiver)

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
        self._alive = True
        return await ready

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; raises `EngineDeadError` when the thread has ended."""
        if not self._alive:
            raise EngineDeadError("the engine's thread is not there")
        self._inbox.put(frame)

    async def stop(self, timeout: float) -> None:
        """Tell the engine to end and wait; a thread cannot be forced, so one that hangs is left behind."""
        if self._thread is None:
            return
        self._inbox.put(Shutdown())
        if timeout > 0:
            try:
                await asyncio.wait_for(self._ended.wait(), timeout)
                self._thread.join()
            except TimeoutError:
                logger.error("the engine's thread did not end within %g s and is left behind", timeout)

    def _on_end(self, receiver: Receiver, reason: str | None) -> None:
        self._alive = False
        self._ended.set()
        receiver.on_dead(reason or "the engine was shut down")


class _QueueDoor:
    """The engine loop's door in a process of one: there is one client, with an empty name."""

    def __init__(
        self, inbox: queue.SimpleQueue[ClientFrame], loop: asyncio.AbstractEventLoop, receiver: Receiver
    ) -> None:
        self._inbox = inbox
        self._loop = loop
        self._receiver = receiver
        self._next: ClientFrame | None = None

    def wait(self, timeout: float | None = None) -> None:
        if self._next is None:
            try:
                self._next = self._inbox.get(timeout=timeout)
            except queue.Empty:
                return

    def receive(self) -> tuple[bytes, ClientFrame] | None:
        frame, self._next = self._next, None
        if frame is None:
            try:
                frame = self._inbox.get_nowait()
            except queue.Empty:
                return None
        return b"", frame

    def send(self, client: bytes, frame: EngineFrame) -> bool:
        return _call(self._loop, self._receiver.on_frame, frame)


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
