"""Stream chunks as bytes: everything that does not change is encoded once per call.

Owns: the byte layout of a chunk. Knows nothing of text or tokens; it is on the hot path, once per token.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec

from turret.server.wire import Usage

__all__ = ["ChunkWriter", "StreamHead", "TokenStreamHead", "usage_member"]

encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class StreamHead:
    """What every chunk of a stream repeats."""

    id: str
    object: str
    created: int
    model: str


@dataclass(frozen=True, slots=True)
class TokenStreamHead:
    """What every chunk repeats of a stream of token ids."""

    request_id: str


class ChunkWriter:
    """Writes the chunks of one stream."""

    def __init__(self, head: StreamHead | TokenStreamHead) -> None:
        names = [field.name for field in dataclasses.fields(head)]
        members = (f'"{name}":'.encode() + encode(getattr(head, name)) for name in names)
        self._head = b"data: {" + b",".join(members) + b',"choices":['
        self._prefixes: dict[int, bytes] = {}

    def choice(self, index: int, members: bytes, extra: bytes = b"") -> bytes:
        """A chunk with one choice; `members` are JSON members after the index, `extra` members of the chunk itself."""
        prefix = self._prefixes.get(index)
        if prefix is None:
            prefix = self._prefixes[index] = self._head + b'{"index":%d,' % index
        return prefix + members + b"}]" + extra + b"}\n\n"

    def usage(self, usage: Usage) -> bytes:
        """The chunk without choices that carries the usage."""
        return self._head + b"]" + usage_member(usage) + b"}\n\n"


def usage_member(usage: Usage) -> bytes:
    """Usage as a further member of a chunk."""
    return b',"usage":' + encode(usage)
