"""Contract `endpoint`, 1.1: APIs that are not HTTP and listen on a socket of their own.

Owns: the Protocols and the values they exchange. An endpoint that has `listener` gets, once the engines are up, a host
that starts completions and chats on the same handler as the HTTP routes do; it keeps its framing to itself.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from turret.contracts.endpoints import ChatFinish, ChatUsage, EndpointCall, EndpointFault, EndpointHost
from turret.messages import TokenLogprobs

__all__ = [
    "CompletionAnswer",
    "CompletionPart",
    "EndpointListener",
    "ListenerHost",
    "ListenerPlace",
    "ListeningEndpoint",
    "ServerFacts",
]


@dataclass(frozen=True, slots=True)
class CompletionPart:
    """More of choice `index`. `logprobs` are parallel to `token_ids`, None where none were asked for; those of the
    prompt come with the first part. `finish` is set on the last part of each choice."""

    index: int
    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprobs] | None = None
    prompt_logprobs: Sequence[TokenLogprobs] | None = None
    finish: ChatFinish | None = None


class CompletionAnswer(Protocol):
    """The answer to a body of completions. Nothing runs until `parts` is iterated; closing it ends the work."""

    id: str
    """As completions would show it."""
    model: str
    """The served name."""

    def parts(self) -> AsyncGenerator[CompletionPart, None]:
        """Parts of all choices, mixed, until each has finished. Iterate once. Raises what the engine met."""

    def usage(self) -> ChatUsage:
        """Counts over all choices, right at any moment."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server is. `trouble` is a sentence while it takes no work, None while it does."""

    version: str
    model_names: Sequence[str]
    model_root: str
    max_model_len: int
    vocab_size: int
    eos_token_ids: Sequence[int]
    num_open: int
    uptime: float
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class ListenerPlace:
    """What the options of the HTTP front say that holds for other sockets too: the address to bind (None: every
    interface), whether other front ends bind the same one (`shared`), and the TLS files; with `client_certificates` a
    client must show one that `ssl_ca_certs` signed."""

    host: str | None = None
    shared: bool = False
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_ca_certs: str | None = None
    client_certificates: bool = False


class ListenerHost(EndpointHost, Protocol):
    """What a listener may ask of the server."""

    place: ListenerPlace

    def call(self, headers: Mapping[str, str]) -> EndpointCall:
        """A call with these headers (lower-case names). Raises `turret.errors.UnauthorizedError` for one without a
        key, where the server asks for keys."""

    async def complete(self, call: EndpointCall, body: Mapping[str, Any]) -> CompletionAnswer:
        """The answer to a body of completions, checked; raises `turret.errors.RequestError` and its kin."""

    async def abort(self, call: EndpointCall, request_ids: Sequence[str]) -> int:
        """End the caller's open calls of these ids, whichever front end has them; returns how many there were."""

    def fault(self, error: Exception) -> EndpointFault:
        """An exception as its caller may read it. What nobody raised on purpose is logged and kept private."""

    def facts(self) -> ServerFacts:
        """As of now."""


class EndpointListener(Protocol):
    """An API on a socket of its own."""

    async def start(self) -> str:
        """Listen; returns where, as people write it. Raises `turret.errors.ConfigError` where it cannot."""

    async def stop(self) -> None:
        """End. Open calls had the time of --shutdown-timeout before this."""


@runtime_checkable
class ListeningEndpoint(Protocol):
    """An endpoint that listens for itself. Its `routes` may be none."""

    api: str

    def listener(self, host: ListenerHost) -> EndpointListener:
        """Its listener, which is started once the engines are up."""
