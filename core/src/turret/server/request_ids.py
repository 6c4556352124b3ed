"""The X-Request-Id header.

Owns: echoing the id of every request, and giving one to those that came without. Knows nothing of what ids are for.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["RequestIdEcho", "choose_request_ids"]

_KEY = "turret.request_id"
_LONGEST = 1024
"""Longer ids of a body are in the answer's body only."""


class _Echoed:
    """The id that an answer will be sent with; whoever reads the body may still find another there."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def choose_request_ids(headers: Mapping[str, str], body_id: str | None, scope: Mapping[str, Any]) -> list[str]:
    """The ids of a call, the one to answer with first: that of the header, that of the body, else the one it was given
    when it came."""
    echoed = scope.get(_KEY)
    named = [given for given in (headers.get("x-request-id"), body_id) if given]
    if not named:
        named = [uuid.uuid4().hex if echoed is None else echoed.name]
    if echoed is not None and _fits_a_header(named[0]):
        echoed.name = named[0]
    return named


def _fits_a_header(name: str) -> bool:
    return name.isascii() and name.isprintable() and len(name) <= _LONGEST


class RequestIdEcho:
    """ASGI middleware for --enable-request-id-headers: the client's id, or a fresh one, on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the header."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        echoed = _Echoed(Headers(scope=scope).get("x-request-id") or uuid.uuid4().hex)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = echoed.name
            await send(message)

        await self._app({**scope, _KEY: echoed}, receive, send_with_id)
