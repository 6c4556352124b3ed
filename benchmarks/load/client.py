"""A client for loads: HTTP/1.1 by hand on asyncio, so that the load costs less than what it measures.

Owns: one request at a time over one connection. Knows nothing of what is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Answer", "Target", "ask"]


@dataclass(frozen=True)
class Target:
    """A server on this machine."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Target:
        """From `http://host:port`."""
        host, port = url.removeprefix("http://").rstrip("/").split(":")
        return cls(host, int(port))


@dataclass
class Answer:
    """What came of a request: status 0 when the connection ended before any. Times are seconds from the start."""

    status: int = 0
    events: int = 0
    first: float = 0.0
    seconds: float = 0.0
    body: bytes = b""
    complete: bool = False
    headers: dict[str, str] = field(default_factory=dict)


async def ask(target: Target, path: str, body: dict[str, Any] | bytes | None, leave_after: int | None = None) -> Answer:
    """Send one request and read its answer; after `leave_after` events of a stream hang up instead.

    Events are counted as they pass and not kept; the first event's time is that of the first byte of the body.
    """
    answer, began = Answer(), time.perf_counter()
    reader, writer = await asyncio.open_connection(target.host, target.port)
    try:
        writer.write(_request(target, path, body))
        await _head(reader, answer)
        await _body(reader, answer, began, leave_after)
    except (ConnectionError, asyncio.IncompleteReadError):
        answer.complete = False
    finally:
        answer.seconds = time.perf_counter() - began
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return answer


def _request(target: Target, path: str, body: dict[str, Any] | bytes | None) -> bytes:
    payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    head = f"{method} {path} HTTP/1.1\r\nhost: {target.host}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(payload)}\r\nconnection: close\r\n\r\n".encode() + payload


async def _head(reader: asyncio.StreamReader, answer: Answer) -> None:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    answer.status = int(lines[0].split()[1])
    answer.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}


async def _body(reader: asyncio.StreamReader, answer: Answer, began: float, leave_after: int | None) -> None:
    streamed = answer.headers.get("content-type", "").startswith("text/event-stream")
    kept: list[bytes] = []
    while piece := await reader.read(1 << 16):
        answer.first = answer.first or time.perf_counter() - began
        answer.events += piece.count(b"\ndata: ")
        kept = [*kept[-1:], piece] if streamed else [*kept, piece]
        if leave_after is not None and answer.events >= leave_after:
            return
    answer.body = b"".join(kept)
    ending = b"data: [DONE]\n\n" if streamed else b""
    chunked = answer.headers.get("transfer-encoding") == "chunked"
    answer.complete = ending in answer.body and (not chunked or answer.body.endswith(b"0\r\n\r\n"))
