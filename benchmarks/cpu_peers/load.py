"""Streams against a server with the OpenAI API, from the standard library alone: a client that costs little, since it
shares the server's cores.

Owns: the requests and the reading of their streams. Knows nothing of who answers. Loopback only.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from cpu_peers.rounds import prompts

__all__ = ["Clients", "LoadError", "tokens_per_second"]

PROMPT, OUTPUT = 128, 128
_HEAD = "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"


class LoadError(RuntimeError):
    """A server refused a request or broke a stream off."""


@dataclass(frozen=True, slots=True)
class Clients:
    """So many at once, each with a request open all the time, and requests of all of them together."""

    count: int
    requests: int
    seed: int


def tokens_per_second(port: int, clients: Clients, extra: Mapping[str, Any]) -> float:
    """Output tokens/s over the whole time. Prompts are token ids and all different."""
    return asyncio.run(_all(port, clients, extra))


async def _all(port: int, clients: Clients, extra: Mapping[str, Any]) -> float:
    waiting, made = iter(prompts(clients.requests, PROMPT, clients.seed)), 0

    async def client() -> None:
        nonlocal made
        for prompt in waiting:
            tokens = await _one(port, {"prompt": prompt, **extra})
            made += tokens  # not in one line: the sum would be read before the others add to it

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients.count):
            group.create_task(client())
    return made / (time.perf_counter() - began)


async def _one(port: int, fields: Mapping[str, Any]) -> int:
    """Tokens of one stream, as its usage record says."""
    body = {
        "model": "m", "max_tokens": OUTPUT, "temperature": 0, "stream": True, "ignore_eos": True,
        "stream_options": {"include_usage": True}, **fields,
    }  # fmt: skip
    content = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{_HEAD.format(port=port)}content-length: {len(content)}\r\n\r\n".encode() + content)
        status = (await reader.readline()).decode()
        while (await reader.readline()).strip():
            continue
        if " 200 " not in status:
            raise LoadError(f"{status.strip()}: {(await reader.read(300)).decode(errors='replace')}")
        return await _tokens(reader)
    finally:
        writer.close()


async def _tokens(reader: asyncio.StreamReader) -> int:
    made = 0
    async for line in _lines(reader):
        if line.startswith(b"data:") and not line.endswith(b"[DONE]"):
            chunk = json.loads(line[5:])
            if chunk.get("usage"):
                made = int(chunk["usage"]["completion_tokens"])
    if made != OUTPUT:
        raise LoadError(f"a stream of {OUTPUT} tokens ended after {made}")
    return made


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines of a body in chunked encoding."""
    rest = b""
    while size := int(await reader.readline(), 16):
        *whole, rest = (rest + (await reader.readexactly(size + 2))[:-2]).split(b"\n")
        for line in whole:
            yield line.strip()
    if rest:
        yield rest.strip()
