"""A client's link to an engine in a process of its own.

Owns: the client's socket and the watch over the process, both in the client's event loop. Knows nothing of streams.

The loop watches two descriptors: the socket's, and the status pipe's, whose end is the child's death. Nothing polls.
"""

from __future__ import annotations

import asyncio

from turret.engine.ports import Progress, Receiver
from turret.engine.process import EngineProcess
from turret.engine.status import Loading, StartFailure
from turret.errors import EngineDeadError
from turret.messages import ClientFrame, EngineFailure, EngineReady, Shutdown
from turret.transport import ClientSocket

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
        self._socket: ClientSocket | None = None
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
        self._socket = ClientSocket(self._process.address)
        self._loop.add_reader(self._socket.fileno(), self._on_readable)
        return ready

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; raises `EngineDeadError` when there is no engine, `RequestError` when it is too long."""
        if self._socket is None or self._loop is None:
            raise EngineDeadError("the engine process is not there")
        self._socket.send(frame)
        if self._socket.readable:  # sending may have swallowed the edge that announces a frame
            self._loop.call_soon(self._on_readable)

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

    def _on_readable(self) -> None:
        socket, receiver = self._socket, self._receiver
        if socket is None or receiver is None:
            return
        while (frame := socket.receive()) is not None:
            receiver.on_frame(frame)

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
        self._on_readable()
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
            if self._loop is not None:
                self._loop.remove_reader(socket.fileno())
            socket.close()
        if self._loop is not None and not self._gone.is_set() and self._process.launched:
            self._loop.remove_reader(self._process.status_fd)
            self._gone.set()
        self._process.end()
