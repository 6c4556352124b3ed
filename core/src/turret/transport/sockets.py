"""The two ends of the wire: one engine, any number of clients.

Owns: ZeroMQ sockets, msgpack encoding, limits of size, what happens to a frame that makes no sense. Knows nothing of
what frames mean.

The engine binds a ROUTER, so that an answer goes to the client that asked; a client connects a DEALER. Queues have no
length limit on purpose: a full ROUTER queue loses messages without a word. What may be under way is bounded by who
admits requests, not here.
"""

from __future__ import annotations

import logging
import os

import msgspec
import zmq

from turret.errors import RequestError
from turret.messages import ClientFrame, EngineFrame

__all__ = ["MAX_FRAME_BYTES", "ClientSocket", "EngineSocket"]

MAX_FRAME_BYTES = 64 * 2**20
"""Longest frame either end accepts: a prompt of ten million tokens still fits."""
LINGER_MS = 1000
"""How long a closing socket may take to hand over what it was given (last words of an engine)."""

logger = logging.getLogger(__name__)


class EngineSocket:
    """The engine's end. Use it from one thread."""

    def __init__(self, address: str, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._context = zmq.Context(io_threads=1)
        self._socket = _open(self._context, zmq.ROUTER, max_frame_bytes)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an unknown client is an error, not a silent loss
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a client that reconnects keeps its name
        self._socket.bind(address)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._watched = -1
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ClientFrame)

    def watch(self, descriptor: int) -> None:
        """Let `wait` return as well when this descriptor is readable."""
        self._poller.register(descriptor, zmq.POLLIN)
        self._watched = descriptor

    def wait(self, timeout: float | None = None) -> bool:
        """Block until a frame is there or `timeout` seconds passed; None waits for ever, at no cost.

        True when the watched descriptor is readable.
        """
        ready = self._poller.poll(None if timeout is None else max(0, int(timeout * 1000)))
        return any(source == self._watched for source, _ in ready)

    def receive(self) -> tuple[bytes, ClientFrame] | None:
        """The next good frame and its client; None when there is none now. Never blocks."""
        while True:
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return None
            if len(parts) != 2:
                logger.warning("dropped a message of %d parts from client %s", len(parts), parts[0].hex())
                continue
            client, payload = parts
            try:
                return client, self._decoder.decode(payload)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                logger.warning("dropped a bad frame of %d bytes from client %s: %s", len(payload), client.hex(), error)

    def send(self, client: bytes, frame: EngineFrame) -> bool:
        """Send to one client; False when that client is gone."""
        try:
            self._socket.send_multipart((client, self._encoder.encode(frame)), zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def close(self) -> None:
        """Hand over what is queued, then close; safe to repeat."""
        self._socket.close()
        self._context.term()


class ClientSocket:
    """A client's end. Use it from one thread. `name` is what the engine knows it by; unset: one of its own.

    `fileno` tells an event loop when to look. It speaks on edges only: after it fired, call `receive` until it gives
    None, and after each `send` ask `readable`, since sending may swallow an edge.
    """

    def __init__(self, address: str, max_frame_bytes: int = MAX_FRAME_BYTES, name: bytes | None = None) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._context = zmq.Context(io_threads=1)
        self._socket = _open(self._context, zmq.DEALER, max_frame_bytes)
        self._socket.setsockopt(zmq.IDENTITY, name or b"c" + os.urandom(8))
        self._socket.setsockopt(zmq.RECONNECT_IVL, 10)
        self._socket.connect(address)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(EngineFrame)

    def fileno(self) -> int:
        """Descriptor that becomes readable when `receive` may have something."""
        return int(self._socket.getsockopt(zmq.FD))

    @property
    def readable(self) -> bool:
        """True when a frame is there."""
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def wait(self, timeout: float | None = None) -> None:
        """Block until a frame is there or `timeout` seconds passed."""
        self._socket.poll(None if timeout is None else max(0, int(timeout * 1000)))

    def receive(self) -> EngineFrame | None:
        """The next good frame; None when there is none now. Never blocks."""
        while True:
            try:
                payload = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return None
            try:
                return self._decoder.decode(payload)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                logger.error("dropped a bad frame of %d bytes from the engine: %s", len(payload), error)

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame for the engine; raises `RequestError` when it is too long. Never blocks."""
        payload = self._encoder.encode(frame)
        if len(payload) > self._max_frame_bytes:
            raise RequestError(f"the request takes {len(payload)} bytes; the engine's limit is {self._max_frame_bytes}")
        self._socket.send(payload, zmq.NOBLOCK)

    def close(self) -> None:
        """Close at once, dropping what was not sent; safe to repeat."""
        self._socket.close(linger=0)
        self._context.term()


def _open(context: zmq.Context[zmq.Socket[bytes]], kind: int, max_frame_bytes: int) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes)  # a longer one ends that client's connection, unread
    return socket
