"""Frames between a remote worker's two ends, and the channel that carries them.

Owns: the tagged unions of both directions, the framing (length, then msgpack). Knows nothing of processes.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from typing import Any, Generic, TypeVar

import msgspec

from turret.errors import EngineError, TurretError, error_of_kind, kind_of_error
from turret.messages import KVCacheConfig, StepPlan, StepResult, WorkerFacts

__all__ = [
    "Allocate",
    "Boot",
    "Call",
    "Channel",
    "Dying",
    "Failed",
    "FromWorker",
    "Loading",
    "Reply",
    "Started",
    "Step",
    "Stepped",
    "Stop",
    "ToWorker",
]

_LENGTH = struct.Struct("<Q")
_MOST_BYTES = 1 << 30
"""Longer frames are not sent by anybody here: such a length means that the stream is out of step."""


class Boot(msgspec.Struct, frozen=True, tag="boot"):
    """What to build: `entry` is `package.module:function`, called with `argument`; then start it."""

    entry: str
    argument: str


class Allocate(msgspec.Struct, frozen=True, tag="allocate"):
    config: KVCacheConfig


class Step(msgspec.Struct, frozen=True, tag="step"):
    plan: StepPlan


class Call(msgspec.Struct, frozen=True, tag="call"):
    method: str
    args: list[Any]


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End after the running step."""


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """How far a stage of the start is, in [0, 1]."""

    stage: str
    fraction: float


class Started(msgspec.Struct, frozen=True, tag="started"):
    facts: WorkerFacts


class Stepped(msgspec.Struct, frozen=True, tag="stepped"):
    result: StepResult


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """Answer to `Allocate` (no value) and `Call`."""

    value: Any = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Answer to a boot, an allocation or a call that raised: `kind` is a class in `turret.errors`."""

    kind: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        if isinstance(error, TurretError):
            return cls(kind_of_error(error), str(error))
        return cls(EngineError.__name__, f"the worker failed: {type(error).__name__}: {error}")

    def exception(self) -> TurretError:
        """The exception again, on the other side."""
        return error_of_kind(self.kind, self.message)


class Dying(msgspec.Struct, frozen=True, tag="dying"):
    """Last words of a worker that cannot go on."""

    message: str


ToWorker = Boot | Allocate | Step | Call | Stop
FromWorker = Loading | Started | Stepped | Reply | Failed | Dying

Frame = TypeVar("Frame")


class Channel(Generic[Frame]):
    """One end of a stream socket. Any thread may send; one may receive. `kind` is the union of frames that come in."""

    def __init__(self, end: socket.socket, kind: Any) -> None:
        self._socket = end
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(kind)
        self._lock = threading.Lock()
        self._buffer = bytearray()
        # poll, not select: a busy server has descriptors beyond select's 1024.
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    def fileno(self) -> int:
        """Readable when something came or the other end is gone."""
        return self._socket.fileno()

    def send(self, frame: ToWorker | FromWorker) -> None:
        """Send one frame; raises OSError when the other end is gone."""
        with self._lock:
            body = self._encoder.encode(frame)
            self._socket.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self, timeout: float | None = None) -> Frame | None:
        """The next frame; None after `timeout` seconds without one. Raises EOFError when the other end is gone."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (frame := self._buffered()) is None:
            if deadline is not None:
                left = max(0.0, deadline - time.monotonic())
                if not self._poll.poll(left * 1000):
                    return None
            self._read()
        return frame

    def close(self) -> None:
        """Close this end; safe to repeat."""
        self._socket.close()

    def _read(self) -> None:
        try:
            piece = self._socket.recv(1 << 20)
        except ConnectionError:
            piece = b""
        if not piece:
            raise EOFError("the other end is gone")
        self._buffer += piece

    def _buffered(self) -> Frame | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > _MOST_BYTES:
            raise EOFError(f"a frame claims {length} bytes: the stream is out of step")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return self._decoder.decode(body)
