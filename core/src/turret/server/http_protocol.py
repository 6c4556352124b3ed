"""The HTTP connection with bounds: how large a head may be, how many connections, and how long a client may dawdle.

Owns: those bounds, on top of uvicorn's connection around the httptools parser. Knows nothing of requests' meaning. What
breaks a bound ends its own connection, with an answer where one can still be read, and writes nothing to the log above
debug: a flood of bad connections is no flood of lines.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from turret.config import ServerConfig
from turret.server.faults import Fault

__all__ = ["BoundedHttp", "HttpLimits", "bounded_http"]

log = logging.getLogger("turret.server")

_OTHER_FILES = 128
"""Open files left to the engine's sockets, weights and logs."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of every connection; `connections` is one of all together."""

    head_bytes: int
    header_count: int
    client_seconds: float
    connections: int

    @classmethod
    def of(cls, config: ServerConfig) -> HttpLimits:
        """As the options say."""
        connections = config.max_connections or max(16, _open_files() - _OTHER_FILES)
        head = config.h11_max_incomplete_event_size
        return cls(head, config.h11_max_header_count, config.timeout_client, connections)


def bounded_http(limits: HttpLimits) -> Callable[..., BoundedHttp]:
    """What uvicorn makes its connections with."""
    return partial(BoundedHttp, limits)


class _Refused(Exception):
    """Raised in the parser's callbacks: the head breaks a bound."""


class BoundedHttp(HttpToolsProtocol):
    """One connection.

    One timer covers three waits, each at most `client_seconds`: for the whole of a head, for the next piece of a body,
    for a client that does not read. Between requests uvicorn's keep-alive timer runs instead.
    """

    def __init__(self, limits: HttpLimits, **rest: Any) -> None:
        super().__init__(**rest)
        self._limits = limits
        self._refusal: Fault | None = None
        self._head_open = False
        self._head_bytes = 0
        self._offering = False
        self._offered_method = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self._refuse(Fault(503, "ServiceUnavailableError", "too many connections; try again later", None, 1.0))
            return
        self._await_client()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of heads and bodies."""
        if self._refusal is not None or self.parser is None:
            return
        self._unset_keepalive_if_required()
        if self._timer is None:
            self._await_client()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._refuse(self._refusal or Fault(400, HTTPStatus.BAD_REQUEST.phrase, "this is not valid HTTP"))
            return
        self._after(len(data))

    def _feed(self, data: bytes) -> None:
        """To the parser. A client that offers another protocol (h2c, as some libraries do with their first request) is
        answered in this one: the parser, which would leave the body to the other, gets the head without the offer.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.parser = httptools.HttpRequestParser(self)
            self._feed(self._head_without_offer() + data[upgrade.args[0] :])

    def _head_without_offer(self) -> bytes:
        offers = (b"upgrade", b"http2-settings", b"connection")
        kept = [b"%b: %b" % (name, value) for name, value in self.headers if name not in offers]
        closing = any(name == b"connection" and b"close" in value.lower() for name, value in self.headers)
        kept.append(b"connection: close" if closing else b"connection: keep-alive")
        return b"\r\n".join([b"%b %b HTTP/1.1" % (self._offered_method, self.url), *kept, b"", b""])

    def _after(self, size: int) -> None:
        """Where the bytes left us: in a head, in a body, or with all there is to know."""
        if self._head_open:
            self._head_bytes += size
            if self._head_bytes > self._limits.head_bytes:
                self._refuse(self._head_too_large())
        elif self.cycle is not None and self.cycle.more_body:
            self._await_client()
        elif not self.flow.write_paused:
            self._stop_timer()

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._head_open = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of it."""
        super().on_header(name, value)
        if len(self.headers) > self._limits.header_count:
            self._reject(_head_fault(f"a request may have at most {self._limits.header_count} headers"))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.head_bytes:
            self._reject(self._head_too_large())
        self._head_open = False
        self._offering = self.parser.should_upgrade()
        if self._offering:
            self._offered_method = self.parser.get_method()
            if self._offered_method == b"CONNECT":
                self._reject(Fault(405, HTTPStatus.METHOD_NOT_ALLOWED.phrase, "this server is no proxy"))
        else:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is whole, if it was ours."""
        if not self._offering:
            super().on_message_complete()

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        super().pause_writing()
        self._await_client()

    def resume_writing(self) -> None:
        """It caught up."""
        super().resume_writing()
        self._stop_timer()

    def _reject(self, fault: Fault) -> None:
        self._refusal = fault
        raise _Refused

    def _head_too_large(self) -> Fault:
        return _head_fault(f"the head of a request may have at most {self._limits.head_bytes} bytes")

    def _refuse(self, fault: Fault) -> None:
        """Answer and close; a request that is being answered already is cut instead, its client being lost."""
        self._refusal = fault
        self._stop_timer()
        log.debug("connection refused: %s", fault.message)
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
            return
        self.transport.write(_raw_answer(fault))
        self.transport.close()

    def _await_client(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self._limits.client_seconds, self._out_of_patience)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _out_of_patience(self) -> None:
        self._timer = None
        if self.flow.read_paused and not self.flow.write_paused:
            self._await_client()  # it is us who do not read
        elif self.flow.write_paused:
            log.debug("a client did not read its answer for %g s", self._limits.client_seconds)
            self.transport.abort()
        elif self._head_open or self.cycle is None or not self.cycle.response_complete:
            seconds = self._limits.client_seconds
            self._refuse(Fault(408, HTTPStatus.REQUEST_TIMEOUT.phrase, f"the request took longer than {seconds:g} s"))
        else:
            self.transport.close()


def _head_fault(message: str) -> Fault:
    return Fault(431, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE.phrase, message)


def _raw_answer(fault: Fault) -> bytes:
    """A whole answer, for requests that never became one."""
    head = [f"HTTP/1.1 {fault.status} {HTTPStatus(fault.status).phrase}", "content-type: application/json"]
    head += [f"{name}: {value}" for name, value in fault.headers.items()]
    head += [f"content-length: {len(fault.body)}", "connection: close"]
    return "\r\n".join([*head, "", ""]).encode() + fault.body


def _open_files() -> int:
    """How many files this process may open; the soft limit is raised to the hard one, as servers do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return min(soft, 1 << 20) if soft != resource.RLIM_INFINITY else 1 << 20
