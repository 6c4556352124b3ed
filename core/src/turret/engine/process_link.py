"""A client's link to an engine in a process of its own.

Owns: the client's socket and the watch over the process, both in the client's event loop. Knows nothing of streams.

The loop watches two descriptors: the socket's, and the status pipe's, whose end is the child's death. Nothing polls.
"""

from __future__ import annotations

import asyncio

from turret.engine.frame_socket import FrameSocket
from turret.engine.ports import Progress, Receiver
from turret.engine.process import EngineProcess
from turret.engine.status import Loading, StartFailure
from turret.errors import EngineDeadError
from turret.messages import ClientFrame, EngineFailure, EngineReady, Shutdown

__all__ = ["ProcessLink"]


class ProcessLink:
    """Starts (unless launched already), watches and ends one engine process."""

    def __init__(self, process: EngineProcess) -> None:
        self._process = process
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receiver: Receiver | None = None
        self._progress: Progress | None = None
        self._ready: asyncio.Future[EngineReady] | None = None
        self._gone = asyncio.Event()
        self._socket: FrameSocket | None = None
        self._last_words = ""

    async def start(self, receiver: Receiver, progress: Progress | None) -> EngineReady:
        """Wait for the engine; raises what stopped it."""
        self._loop = asyncio.get_running_loop()
        self._receiver, self._progress = receiver, progress
        self._ready = self._loop.create_future()
        if not self._process.launched:
            self._process.launch()
        self._loop.add_reader(self._process.status_fd, self._on_status)
        try:
            ready = await self._ready
        except BaseException:
            await self.stop(0.0)
            raise
        self._socket = FrameSocket(self._process.address, receiver)
        return ready

    @property
    def address(self) -> str:
        """Where other clients reach the engine."""
        return self._process.address

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; raises `EngineDeadError` when there is no engine, `RequestError` when it is too long."""
        if self._socket is None:
            raise EngineDeadError("the engine process is not there")
        self._socket.send(frame)

    async def stop(self, timeout: float) -> None:
        """Tell the engine to end, wait, then use force."""
        if self._socket is not None and not self._gone.is_set():
            self.send(Shutdown())
        if timeout > 0 and self._process.running:
            try:
                await asyncio.wait_for(self._gone.wait(), timeout)
            except TimeoutError:
                self._last_words = f"the engine did not end within {timeout:g} s and was killed"
        self._release()

    def _on_status(self) -> None:
        said = self._process.read_status()
        if said is None:
            self._on_end()
            return
        for status in said:
            if isinstance(status, Loading):
                if self._progress is not None:
                    self._progress(status.stage, status.fraction)
            elif isinstance(status, EngineReady):
                self._settle(status)
            elif isinstance(status, StartFailure):
                self._settle(status.exception())
            elif isinstance(status, EngineFailure):
                self._last_words = status.message

    def _on_end(self) -> None:
        """The child is dead: first what it still sent, then the end."""
        if self._loop is not None:
            self._loop.remove_reader(self._process.status_fd)
        if self._socket is not None:
            self._socket.drain()
        self._gone.set()
        reason = self._last_words or self._process.death()
        self._settle(EngineDeadError(f"{reason} during start"))
        if self._receiver is not None and self._socket is not None:
            self._receiver.on_dead(reason)

    def _settle(self, outcome: EngineReady | Exception) -> None:
        if self._ready is None or self._ready.done():
            return
        if isinstance(outcome, Exception):
            self._ready.set_exception(outcome)
        else:
            self._ready.set_result(outcome)

    def _release(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
        if self._loop is not None and not self._gone.is_set() and self._process.launched:
            self._loop.remove_reader(self._process.status_fd)
            self._gone.set()
        self._process.end()
