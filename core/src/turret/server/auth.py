"""API keys.

Owns: which paths are public and how a key is checked, whatever way it came. Knows nothing of routes. Everything is
guarded but an explicit list: probes and the version tell nothing about anybody's data.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["PUBLIC_PATHS", "ApiKeyGuard", "KeyRing"]

PUBLIC_PATHS = frozenset({"/health", "/ping", "/version"})

DENIED = b'{"error":"Unauthorized"}'


class KeyRing:
    """The keys that open the server; none at all leave it open to everybody."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def opens(self, headers: Mapping[str, str]) -> bool:
        """Whether headers (lower-case names) carry a key, as a bearer token or in X-Api-Key."""
        if not self._digests:
            return True
        scheme, _, token = (headers.get("authorization") or "").partition(" ")
        if scheme.lower() != "bearer":
            token = headers.get("x-api-key") or ""  # what clients of Anthropic's API send
        given = _digest(token.strip())
        # Every key is compared, in constant time, so that timing tells nothing about them.
        return any([hmac.compare_digest(given, known) for known in self._digests])


class ApiKeyGuard:
    """ASGI middleware: 401 unless a request carries one of the keys, as a bearer token or in X-Api-Key."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = KeyRing(keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        if scope["type"] not in ("http", "websocket") or self._open(scope) or self._keys.opens(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        denial = Response(DENIED, 401, {"www-authenticate": "Bearer"}, "application/json")
        await denial(scope, receive, send)

    def _open(self, scope: Scope) -> bool:
        if scope.get("method") == "OPTIONS":
            return True
        root, path = scope.get("root_path", ""), scope["path"]
        if root and path.startswith(root + "/"):
            path = path[len(root) :]
        return path in PUBLIC_PATHS


def _digest(key: str) -> bytes:
    """A fixed-length stand-in for a key, so that comparing does not depend on its length."""
    return hashlib.sha256(key.encode()).digest()
