"""The X-Request-Id header.

Owns: giving every request an id and echoing it. Knows nothing of what ids are used for.
"""

from __future__ import annotations

import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["RequestIdEcho"]


class RequestIdEcho:
    """ASGI middleware for --enable-request-id-headers: the client's id, or a fresh one, on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the header; a request without one gets it, so that answers and logs agree."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = Headers(scope=scope).get("x-request-id")
        if request_id is None:
            request_id = uuid.uuid4().hex
            scope = {**scope, "headers": [*scope["headers"], (b"x-request-id", request_id.encode())]}

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)
