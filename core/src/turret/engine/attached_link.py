"""A client's link to an engine that somebody else started and watches.

Owns: the client's socket. Knows nothing of the engine's process: whoever watches it says when it is gone.
"""

from __future__ import annotations

from turret.engine.frame_socket import FrameSocket
from turret.engine.ports import Progress, Receiver
from turret.errors import EngineDeadError
from turret.messages import ClientFrame, EngineReady

__all__ = ["AttachedLink"]


class AttachedLink:
    """Joins an engine that is up. `name` is what the engine knows this client by."""

    def __init__(self, address: str, ready: EngineReady, name: bytes) -> None:
        self._address = address
        self._ready = ready
        self._name = name
        self._receiver: Receiver | None = None
        self._socket: FrameSocket | None = None

    async def start(self, receiver: Receiver, progress: Progress | None) -> EngineReady:
        """Connect; what the engine is like was known before."""
        self._receiver = receiver
        self._socket = FrameSocket(self._address, receiver, self._name)
        return self._ready

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; raises `EngineDeadError` after the end, `RequestError` when it is too long."""
        if self._socket is None:
            raise EngineDeadError("the engine is not there")
        self._socket.send(frame)

    def gone(self, reason: str) -> None:
        """The engine is dead: first what it still sent, then the end."""
        if self._socket is not None and self._receiver is not None:
            self._socket.drain()
            self._receiver.on_dead(reason)

    async def stop(self, timeout: float) -> None:
        """Leave; the engine goes on."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
