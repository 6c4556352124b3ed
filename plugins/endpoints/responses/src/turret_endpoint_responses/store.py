"""Responses that are kept: for retrieval, and to be gone on from.

Owns: the bound on how many and how large, whose they are, and that those who read on hear of more. Knows nothing of
their shape.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turret.errors import RequestError

__all__ = ["ResponseNotFoundError", "Store", "Stored"]


class ResponseNotFoundError(RequestError):
    """No such response, or somebody else's: which of the two is not told."""

    status = 404


@dataclass(slots=True)
class Stored:
    """A response as it is, the items it was asked with, the messages it answered and its own, and the task that still
    makes it, if one does."""

    tenant: str
    response: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    size: int = 0
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, event: bytes) -> None:
        """One more event; whoever follows wakes up."""
        self.events.append(event)
        self._wake()

    def end(self) -> None:
        """Nobody makes it any more."""
        self.task = None
        self._wake()

    async def follow(self, place: int) -> AsyncGenerator[bytes, None]:
        """Events from `place` on, those to come too while somebody makes them."""
        while True:
            more = self._more  # taken before looking, so that nothing is missed
            while place < len(self.events):
                yield self.events[place]
                place += 1
            if self.task is None:
                return
            await more.wait()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()


class Store:
    """The latest responses; the oldest goes first. One that is still being made is not dropped."""

    def __init__(self, max_stored: int, max_bytes: int) -> None:
        self._max_stored = max_stored
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, Stored] = OrderedDict()

    def put(self, stored: Stored) -> None:
        """Keep it, as it is now."""
        name = stored.response["id"]
        self.drop(name)
        stored.size = sum(len(msgspec.json.encode(part)) for part in (stored.response, stored.messages, stored.asked))
        stored.size += sum(map(len, stored.events))
        self._kept[name] = stored
        self._bytes += stored.size
        for old in [key for key, one in self._kept.items() if one.task is None or one.task.done()]:
            if len(self._kept) <= self._max_stored and self._bytes <= self._max_bytes:
                break
            self.drop(old)

    def get(self, name: str, tenant: str) -> Stored:
        """The response of that id; raises `ResponseNotFoundError`."""
        stored = self._kept.get(name)
        if stored is None or stored.tenant != tenant:
            raise ResponseNotFoundError(f"there is no response {name!r} here; only the latest are kept", "response_id")
        return stored

    def drop(self, name: str) -> None:
        """Forget it."""
        stored = self._kept.pop(name, None)
        if stored is not None:
            self._bytes -= stored.size
