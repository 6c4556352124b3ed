"""Endpoint plugins through a real server: an API of one path that answers with what it was given."""

from __future__ import annotations

import concurrent.futures
import json

import httpx
import pytest

from turret.contracts import (
    ChatFinish,
    ContentDelta,
    EndpointAnswer,
    EndpointRoute,
    EndpointStream,
)
from turret.errors import RequestError, RequestFailedError

COUNT = 40
MESSAGES = [{"role": "user", "content": "Hello"}]


class Plain:
    """Text in, text out."""

    api = "1.0"
    id_prefix = "plain-"

    def routes(self, host):
        async def say(call):
            body = call.body
            if not isinstance(body, dict) or "text" not in body:
                raise RequestError("text is missing", "text")
            chat = {"messages": [{"role": "user", "content": body["text"]}], "max_tokens": body.get("size", COUNT)}
            chat |= body.get("more", {})
            answer = await host.chat(call, chat)
            if body.get("stream"):
                return EndpointStream(told(answer, body.get("fail")), lambda fault: f"!{fault.message}\n".encode())
            texts, finish = [], None
            async for part in answer.parts():
                if isinstance(part, ContentDelta):
                    texts.append(part.text)
                elif isinstance(part, ChatFinish):
                    finish = part
            usage = answer.usage()
            made = {"said": "".join(texts), "why": finish.reason, "in": usage.prompt, "out": usage.output}
            made["id"] = answer.id
            return EndpointAnswer(json.dumps(made).encode())

        async def count(call):
            return EndpointAnswer(b"%d" % await host.count(call, {"messages": MESSAGES}))

        async def show(call):
            return EndpointAnswer(json.dumps([call.path["name"], dict(call.query)]).encode())

        fault = lambda fault: json.dumps({"no": fault.message, "field": fault.param}).encode()  # noqa: E731
        return [
            EndpointRoute("POST", "/plain", say, fault, "Say."),
            EndpointRoute("POST", "/plain/count", count, fault, "Count."),
            EndpointRoute("GET", "/plain/{name}", show, fault, "Show."),
        ]


async def told(answer, fail):
    async for part in answer.parts():
        if isinstance(part, ContentDelta):
            yield part.text.encode() + b"\n"
            if fail:
                raise RequestFailedError("it broke")
    yield b"end\n"


@pytest.fixture
def plain(serve):
    with serve(parts={"endpoints": (Plain(),)}) as running, httpx.Client(base_url=running.url, timeout=30) as client:
        yield running, client


def test_it_runs_on_the_chat_handler(plain):
    running, client = plain
    said = client.post("/plain", json={"text": "Hello"}).json()
    assert said["said"] == running.answer("<user>Hello<assistant>", COUNT)
    assert said["why"] == "length" and said["out"] == COUNT and said["in"] == len("<user>Hello<assistant>")
    assert client.post("/plain/count", json={}).json() == said["in"]
    assert client.get("/plain/x?a=b").json() == ["x", {"a": "b"}]


def test_streams_and_their_errors(plain):
    running, client = plain
    lines = client.post("/plain", json={"text": "Hello", "stream": True}).text.splitlines()
    assert "".join(lines[:-1]) == running.answer("<user>Hello<assistant>", COUNT) and lines[-1] == "end"
    cut = client.post("/plain", json={"text": "Hello", "stream": True, "fail": True}).text.splitlines()
    assert cut[-1] == "!it broke"
    assert "request_success_total" in client.get("/metrics").text


@pytest.mark.parametrize("name", ["plain-of-the-header", "of-the-header", "plain-of-the-body"])
def test_a_call_can_be_aborted_by_the_id_of_its_answer(serve, until, name):
    with (
        serve({"step_seconds": 0.02}, parts={"endpoints": (Plain(),)}) as running,
        httpx.Client(base_url=running.url, timeout=30) as client,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        body = {"text": "Hello", "size": 400, "more": {"request_id": "of-the-body"}}
        call = pool.submit(client.post, "/plain", json=body, headers={"x-request-id": "of-the-header"})
        until(lambda: running.state.lifecycle.num_open == 1)
        httpx.post(f"{running.url}/abort_requests", json={"request_ids": ["chatcmpl-of-nobody", name]})
        said = call.result(20).json()
        assert (said["id"], said["why"]) == ("plain-of-the-header", "abort") and said["out"] < 300


def test_errors_in_its_own_shape(plain):
    _, client = plain
    for body, word in (({}, "text is missing"), ({"text": "x", "more": {"n": 2}}, "n must be 1"),
                       ({"text": "x", "more": {"temperature": -1}}, "temperature"),
                       ({"text": 5}, "content"), ({"text": "x", "size": 10**9}, "max_tokens")):  # fmt: skip
        answer = client.post("/plain", json=body)
        assert answer.status_code == 400, answer.text
        assert set(answer.json()) == {"no", "field"} and word in answer.json()["no"]
    broken = client.post("/plain", content=b"{", headers={"content-type": "application/json"})
    assert broken.status_code == 400 and "not valid JSON" in broken.json()["no"]
    deep = client.post("/plain", content=b"[" * 5000 + b"]" * 5000, headers={"content-type": "application/json"})
    assert deep.status_code == 400
    unknown = client.post("/plain", json={"text": "x", "more": {"model": "nobody"}})
    assert unknown.status_code == 404 and "nobody" in unknown.json()["no"]


def test_it_is_in_the_document_and_behind_the_key(serve):
    with serve(parts={"endpoints": (Plain(),)}, api_key=["secret"]) as running, httpx.Client(base_url=running.url) as c:
        assert c.post("/plain", json={"text": "x"}).status_code == 401
        assert c.post("/plain", json={"text": "x"}, headers={"x-api-key": "wrong"}).status_code == 401
        assert c.post("/plain", json={"text": "x"}, headers={"x-api-key": "secret"}).status_code == 200
        document = c.get("/openapi.json", headers={"authorization": "Bearer secret"}).json()
        assert set(document["paths"]["/plain"]) == {"post"}
