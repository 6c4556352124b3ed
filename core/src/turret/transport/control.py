"""The channel between a server's main process and one of its front ends.

Owns: framing on a pair of sockets, in an event loop. Knows nothing of what the frames mean. The end of the stream is
the other side's death, so nothing polls.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Generic, TypeVar

import msgspec

__all__ = ["ControlChannel"]

MAX_FRAME_BYTES = 64 * 2**20

Incoming = TypeVar("Incoming")


class ControlChannel(Generic[Incoming]):
    """One end: frames of type `Incoming` come in, any frame goes out. One JSON text a line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, incoming: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder: msgspec.json.Decoder[Incoming] = msgspec.json.Decoder(incoming)
        self._encoder = msgspec.json.Encoder()

    @classmethod
    async def open(cls, sock: socket.socket, incoming: Any) -> ControlChannel[Incoming]:
        """The channel over a connected socket, which it owns from now on."""
        reader, writer = await asyncio.open_unix_connection(sock=sock, limit=MAX_FRAME_BYTES)
        return cls(reader, writer, incoming)

    def send(self, frame: msgspec.Struct) -> None:
        """Queue a frame; lost without a word when the other side is gone, which `receive` tells."""
        if not self._writer.is_closing():
            self._writer.write(self._encoder.encode(frame) + b"\n")

    async def flush(self) -> None:
        """Wait until what was sent is on its way."""
        await self._writer.drain()

    async def receive(self) -> Incoming | None:
        """The next frame; None once the other side is gone."""
        try:
            line = await self._reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return self._decoder.decode(line)

    def close(self) -> None:
        """Close; safe to repeat."""
        self._writer.close()
