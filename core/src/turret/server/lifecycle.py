"""Open calls and the end of the server: admission while running, draining, and what happens when time is up.

Owns: the set of open calls and the state running -> draining -> expired. Knows nothing of signals or sockets; whoever
hears Ctrl-C calls `drain`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from turret.errors import CapacityError

__all__ = ["Lifecycle"]

RETRY_SECONDS = 5.0


class Lifecycle:
    """Who is open, and whether more may come."""

    def __init__(self) -> None:
        self._open: dict[int, Callable[[], Awaitable[None]]] = {}
        self._serial = 0
        self._draining = False
        self._expired = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def draining(self) -> bool:
        """True once no new work is taken."""
        return self._draining

    @property
    def expired(self) -> bool:
        """True once open calls must end."""
        return self._expired

    @property
    def num_open(self) -> int:
        """Calls that are being answered."""
        return len(self._open)

    def check(self) -> None:
        """Raise `CapacityError` when no new work is taken."""
        if self._draining:
            raise CapacityError("the server is shutting down and takes no new requests", RETRY_SECONDS)

    @contextmanager
    def admit(self, end: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """Count one call while it runs; `end` is called when its time is up and it must finish at once."""
        self.check()
        self._serial += 1
        serial = self._serial
        self._open[serial] = end
        self._idle.clear()
        try:
            yield
        finally:
            del self._open[serial]
            if not self._open:
                self._idle.set()

    async def drain(self, timeout: float) -> int:
        """Take no new work, let open calls finish for `timeout` seconds, then end them; returns how many were ended."""
        self._draining = True
        return 0 if await self.wait_idle(timeout) else await self.expire()

    async def expire(self) -> int:
        """End open calls now; returns how many there were."""
        self._draining = self._expired = True
        ended = list(self._open.values())
        for end in ended:
            await end()
        return len(ended)

    async def wait_idle(self, timeout: float) -> bool:
        """Wait until no call is open; False when `timeout` seconds passed first."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return False
        return True
