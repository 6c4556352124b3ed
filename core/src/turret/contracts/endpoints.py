"""Contract `endpoint`: further HTTP APIs on the one handler that chats.

Owns: the Protocols and the values they exchange. No HTTP framework, no engine: an endpoint turns its API's bodies into
bodies of chat completions and what an answer holds back into its API's shapes. Version 1.0.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from turret.contracts.parsers import ParserEvent

__all__ = [
    "ChatAnswer",
    "ChatFinish",
    "ChatUsage",
    "Endpoint",
    "EndpointAnswer",
    "EndpointCall",
    "EndpointFault",
    "EndpointHost",
    "EndpointRoute",
    "EndpointStream",
]


@dataclass(frozen=True, slots=True)
class ChatFinish:
    """The answer is over. `reason` is that of chat completions (stop, length, tool_calls, ...); `stop` the stop string
    or token id that ended it, if one did."""

    reason: str
    stop: str | int | None = None


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """Tokens so far: of the prompt, of those the ones the prefix cache held, of the output, of those the reasoning."""

    prompt: int
    cached: int
    output: int
    reasoning: int


class ChatAnswer(Protocol):
    """One answer on its way. Nothing runs until `parts` is iterated; closing it, or cancelling, ends the work."""

    id: str
    """The request's id behind the endpoint's prefix."""
    model: str
    """The served name."""
    created: int
    """Seconds since 1970."""

    def parts(self) -> AsyncGenerator[ParserEvent | ChatFinish, None]:
        """What the answer holds, in order; a `ChatFinish` is last. Iterate once. Raises what the engine met."""

    def usage(self) -> ChatUsage:
        """Counts, right at any moment."""


@dataclass(frozen=True, slots=True)
class EndpointCall:
    """One HTTP request: its JSON body (None for methods without one), query and path parameters, lower-case headers."""

    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    tenant: str = ""
    """A name for whoever calls: one caller must not see what belongs to another."""


class EndpointHost(Protocol):
    """What an endpoint may ask of the server."""

    async def chat(self, call: EndpointCall, body: Mapping[str, Any]) -> ChatAnswer:
        """The answer to a body of chat completions, checked; raises `turret.errors.RequestError` and its kin."""

    async def count(self, call: EndpointCall, body: Mapping[str, Any]) -> int:
        """Prompt tokens of a body of chat completions."""


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """A whole answer."""

    body: bytes
    status: int = 200
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class EndpointStream:
    """Server-sent events, encoded. An error after the first event becomes what `on_error` makes of it."""

    events: AsyncGenerator[bytes, None]
    on_error: Callable[[EndpointFault], bytes]


@dataclass(frozen=True, slots=True)
class EndpointFault:
    """A request that failed: the HTTP status, turret's word for the kind, the sentence, the field at fault."""

    status: int
    type: str
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True)
class EndpointRoute:
    """One path. `handler` raises for bad requests; `fault` writes every error in the API's own shape.

    `path` may hold `{name}` parameters. `about` is the line in the OpenAPI document.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Callable[[EndpointCall], Awaitable[EndpointAnswer | EndpointStream]]
    fault: Callable[[EndpointFault], bytes]
    about: str


@runtime_checkable
class Endpoint(Protocol):
    """An HTTP API.

    An endpoint may have an `id_prefix` of its own (text): what its answers put before the id of their request, by which
    `/abort_requests` finds them. Without one it is that of chat completions.
    """

    api: str

    def routes(self, host: EndpointHost) -> Sequence[EndpointRoute]:
        """Its paths."""
