"""A client's socket in an event loop.

Owns: when the socket is read. Knows nothing of what frames mean, nor of whether the engine lives.
"""

from __future__ import annotations

import asyncio

from turret.engine.ports import Receiver
from turret.messages import ClientFrame
from turret.transport import ClientSocket

__all__ = ["FrameSocket"]


class FrameSocket:
    """Hands each frame to `receiver` as it comes. Make it in the loop that will serve it."""

    def __init__(self, address: str, receiver: Receiver, name: bytes | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._receiver = receiver
        self._socket: ClientSocket | None = ClientSocket(address, name=name)
        self._loop.add_reader(self._socket.fileno(), self.drain)

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; raises `RequestError` when it is too long."""
        if self._socket is None:
            return
        self._socket.send(frame)
        if self._socket.readable:  # sending may have swallowed the edge that announces a frame
            self._loop.call_soon(self.drain)

    def drain(self) -> None:
        """Hand over all that is there."""
        while self._socket is not None and (frame := self._socket.receive()) is not None:
            self._receiver.on_frame(frame)

    def close(self) -> None:
        """Close at once; safe to repeat."""
        socket, self._socket = self._socket, None
        if socket is not None:
            self._loop.remove_reader(socket.fileno())
            socket.close()
