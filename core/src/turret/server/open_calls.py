"""Calls that are being answered, by the id their clients know.

Owns: finding a call to abort it. Knows nothing of engines; each call brings its own way to end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from turret.contracts import Endpoint

__all__ = ["OpenCalls", "id_prefix"]

_CHAT = "chatcmpl-"
PREFIXES = (_CHAT, "cmpl-", "generate-tokens-")
"""What answers of core's own routes put before the id of a request."""


def id_prefix(endpoint: Endpoint) -> str:
    """What answers of a further API put before it."""
    prefix: str = getattr(endpoint, "id_prefix", _CHAT)
    return prefix


class OpenCalls:
    """Open calls by tenant and request id; an id may stand for several, since clients choose their own. `prefixes` are
    what answers of further APIs put before it."""

    def __init__(self, prefixes: Iterable[str] = ()) -> None:
        self._prefixes = (*PREFIXES, *prefixes)
        self._open: dict[tuple[str, str], dict[int, Callable[[], Awaitable[None]]]] = {}
        self._serial = 0

    @contextmanager
    def hold(self, tenant: str, request_ids: Iterable[str], abort: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """One call while it runs, by each of its ids; `abort` makes it end at once with what it has."""
        with ExitStack() as held:
            for request_id in set(request_ids):
                held.enter_context(self._held(tenant, request_id, abort))
            yield

    @contextmanager
    def _held(self, tenant: str, request_id: str, abort: Callable[[], Awaitable[None]]) -> Iterator[None]:
        self._serial += 1
        key, serial = (tenant, request_id), self._serial
        self._open.setdefault(key, {})[serial] = abort
        try:
            yield
        finally:
            del self._open[key][serial]
            if not self._open[key]:
                del self._open[key]

    async def abort(self, tenant: str, request_ids: Iterable[str]) -> int:
        """Abort the tenant's calls of these ids, which may be those of answers; returns how many there were."""
        ended = 0
        for request_id in request_ids:
            names = [request_id, *(request_id.removeprefix(p) for p in self._prefixes if request_id.startswith(p))]
            for name in names:
                for abort in list(self._open.get((tenant, name), {}).values()):
                    await abort()
                    ended += 1
        return ended
