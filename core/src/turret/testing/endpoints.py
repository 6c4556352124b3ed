"""Cases of endpoints: sound routes, errors in a shape of their own, and bodies that are none refused on purpose.

Owns these checks and a host that answers with a script. Knows no API.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from turret.contracts import (
    ChatAnswer,
    ChatFinish,
    ChatUsage,
    ContentDelta,
    EndpointAnswer,
    EndpointCall,
    EndpointFault,
    EndpointRoute,
    EndpointStream,
    ParserEvent,
)
from turret.errors import TurretError
from turret.testing.cases import Case, NotApplicable, Subject

__all__ = ["ScriptedAnswer", "ScriptedHost", "build"]

BAD_BODIES: tuple[Any, ...] = (None, 7, "text", [], [1], {}, {"model": 5}, {"model": "m", "messages": 3, "input": 3})


class ScriptedAnswer:
    """An answer whose parts are given (see `turret.contracts.ChatAnswer`)."""

    id = "chatcmpl-scripted"
    model = "scripted"
    created = 1700000000

    def __init__(self, parts: Sequence[ParserEvent | ChatFinish], usage: ChatUsage) -> None:
        self._parts = parts
        self._usage = usage

    async def parts(self) -> AsyncGenerator[ParserEvent | ChatFinish, None]:
        """The script."""
        for part in self._parts:
            yield part

    def usage(self) -> ChatUsage:
        """As given."""
        return self._usage


class ScriptedHost:
    """A host that answers everything with one script and keeps the bodies it was given."""

    def __init__(
        self, parts: Sequence[ParserEvent | ChatFinish] = (ContentDelta("Hello."), ChatFinish("stop")),
        usage: ChatUsage = ChatUsage(prompt=7, cached=0, output=2, reasoning=0),  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        self.bodies: list[dict[str, Any]] = []
        self._parts = parts
        self._usage = usage

    async def chat(self, call: EndpointCall, body: Mapping[str, Any]) -> ChatAnswer:
        """The script."""
        self.bodies.append(dict(body))
        return ScriptedAnswer(self._parts, self._usage)

    async def count(self, call: EndpointCall, body: Mapping[str, Any]) -> int:
        """As given."""
        self.bodies.append(dict(body))
        return self._usage.prompt


def build(subject: Subject) -> Iterator[Case]:
    yield subject.case("semantic", "routes", _routes, subject)
    yield subject.case("semantic", "faults_are_json", _faults, subject)
    yield subject.case("semantic", "bad_bodies_are_refused", _bad_bodies, subject)


def _of(subject: Subject) -> Sequence[EndpointRoute]:
    routes: Sequence[EndpointRoute] = subject.load().routes(ScriptedHost())
    return routes


def _routes(subject: Subject) -> None:
    """Absolute paths, none twice, each with a line for the document."""
    routes = _of(subject)
    if not routes and hasattr(subject.load(), "listener"):
        raise NotApplicable("it listens for itself and has no paths")
    assert routes, "an endpoint without a path does nothing"
    assert all(route.path.startswith("/") and route.about for route in routes)
    assert len({(route.method, route.path) for route in routes}) == len(routes)


def _faults(subject: Subject) -> None:
    for route in _of(subject):
        for status in (400, 404, 413, 429, 500, 503):
            said = msgspec.json.decode(route.fault(EndpointFault(status, "Kind", "what is wrong", "field")))
            assert "what is wrong" in msgspec.json.encode(said).decode(), f"{route.path} keeps the sentence to itself"


def _bad_bodies(subject: Subject) -> None:
    """A body of another shape is an error on purpose, with a sentence."""
    posts = [route for route in _of(subject) if route.method == "POST"]
    if not posts:
        raise NotApplicable("it takes no bodies")
    for route in posts:
        for body in BAD_BODIES:
            try:
                made = asyncio.run(_handled(route, EndpointCall(body, path=_path(route))))
            except TurretError as error:
                assert error.status < 500, f"{route.path} answers {body!r} with {error.status}"
            else:
                assert isinstance(made, EndpointAnswer | EndpointStream)


def _path(route: EndpointRoute) -> dict[str, str]:
    """A value for each parameter of the path."""
    return {name: "unknown" for name in re.findall(r"{(\w+)}", route.path)}


async def _handled(route: EndpointRoute, call: EndpointCall) -> EndpointAnswer | EndpointStream:
    return await route.handler(call)
