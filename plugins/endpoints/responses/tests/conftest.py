"""The endpoint behind OpenAI's own client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import openai
import pytest

from turret.contracts import (
    ChatFinish,
    ChatUsage,
    ContentDelta,
    EndpointAnswer,
    EndpointCall,
    EndpointFault,
    ParserEvent,
)
from turret.errors import RequestError
from turret.testing.endpoints import ScriptedHost
from turret_endpoint_responses.plugin import ResponsesEndpoint

Part = ParserEvent | ChatFinish
SAID: tuple[Part, ...] = (ContentDelta("Hello "), ContentDelta("there."), ChatFinish("stop"))
USAGE = ChatUsage(prompt=10, cached=4, output=6, reasoning=2)


class Bench:
    """The endpoint behind OpenAI's own client, in one event loop that outlives the calls."""

    def __init__(self, parts: Sequence[Part] = SAID, host: ScriptedHost | None = None, **options: int) -> None:
        self.host = host or ScriptedHost(parts, USAGE)
        self.loop = asyncio.new_event_loop()
        self.tenant = "a"
        self.routes = ResponsesEndpoint(options).routes(self.host)
        http = httpx2.Client(transport=httpx2.MockTransport(self._send))
        self.sdk = openai.OpenAI(api_key="k", base_url="http://turret/v1", http_client=http, max_retries=0)

    def _send(self, request: httpx2.Request) -> httpx2.Response:
        status, media, body = self.loop.run_until_complete(self.respond(request))
        return httpx2.Response(status, headers={"content-type": media}, content=body)

    async def respond(self, request: httpx2.Request) -> tuple[int, str, bytes]:
        pieces = request.url.path.split("/")  # "", v1, responses, id, cancel or input_items
        wanted = "/v1/responses" + "".join(("/{response_id}", f"/{pieces[-1]}")[: len(pieces) - 3])
        route = next(one for one in self.routes if (one.method, one.path) == (request.method, wanted))
        body = json.loads(request.content) if request.content else None
        path = {"response_id": pieces[3]} if len(pieces) > 3 else {}
        call = EndpointCall(body, dict(request.url.params), path, {}, self.tenant)
        try:
            made = await route.handler(call)
        except RequestError as error:
            fault = EndpointFault(error.status, "BadRequestError", str(error), error.param)
            return error.status, "application/json", route.fault(fault)
        if isinstance(made, EndpointAnswer):
            return made.status, made.media_type, made.body
        return 200, "text/event-stream", b"".join([event async for event in made.events])


@pytest.fixture
def new_bench() -> type[Bench]:
    """Makes one: of the parts of an answer, or of a host."""
    return Bench


@pytest.fixture
def translated() -> Callable[..., dict[str, Any]]:
    """The chat completion that a body becomes."""

    def translate(**body: Any) -> dict[str, Any]:
        bench = Bench()
        bench.sdk.post("/responses", cast_to=object, body={"model": "m", "input": "Hi", **body})
        return bench.host.bodies[0]

    return translate
