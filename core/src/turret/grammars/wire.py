"""Frames between the front and the process that compiles, and how they are read.

Owns: both directions' frames, a length and msgpack. Knows nothing of grammars.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgspec

from turret.grammars.limits import CompileLimits
from turret.structured import GrammarSpec

__all__ = ["Boot", "FromCompiler", "Job", "Made", "Ready", "Refused", "ToCompiler", "encoded", "receive", "send"]

_LENGTH = struct.Struct("<Q")


class Boot(msgspec.Struct, frozen=True, tag="boot"):
    """What to load: `entry` (`package.module:function`) called with `argument` gives the backends by name; the
    vocabulary; the bounds."""

    entry: str
    argument: str
    tokens: list[bytes]
    stop_ids: list[int]
    limits: CompileLimits


class Job(msgspec.Struct, frozen=True, tag="job"):
    """Compile `spec` with the first of `backends` that can."""

    job_id: int
    spec: GrammarSpec
    backends: list[str]


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Backends that were opened, and why others were not."""

    names: list[str]
    faults: dict[str, str]


class Made(msgspec.Struct, frozen=True, tag="made"):
    job_id: int
    backend: str
    compiled: bytes


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """One sentence. It is `lasting` if the next try would come to the same."""

    job_id: int
    reason: str
    lasting: bool = True


ToCompiler = Boot | Job
FromCompiler = Ready | Made | Refused


def send(end: socket.socket, frame: ToCompiler | FromCompiler) -> None:
    """Raises OSError when the other end is gone."""
    end.sendall(encoded(frame))


def encoded(frame: ToCompiler | FromCompiler) -> bytes:
    """A frame as it is sent."""
    body = msgspec.msgpack.encode(frame)
    return _LENGTH.pack(len(body)) + body


def receive(end: socket.socket, kind: Any) -> Any:
    """The next frame; None when the other end is gone."""
    head = _exactly(end, _LENGTH.size)
    if head is None:
        return None
    body = _exactly(end, _LENGTH.unpack(head)[0])
    return None if body is None else msgspec.msgpack.decode(body, type=kind)


def _exactly(end: socket.socket, count: int) -> bytes | None:
    got = bytearray()
    while len(got) < count:
        try:
            piece = end.recv(min(count - len(got), 1 << 20))
        except OSError:
            return None
        if not piece:
            return None
        got += piece
    return bytes(got)
