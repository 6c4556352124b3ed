"""A crowd of clients on a small cache: some leave in the middle, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import random
import re
from dataclasses import dataclass

import httpx
import pytest

CLIENTS = 60
BLOCKS = 20
"""For up to 16 requests of up to 8 blocks at a time: some are preempted."""


@dataclass(frozen=True)
class Client:
    """One request; `leaves_after` is the number of chunks after which its connection is closed."""

    body: dict[str, object]
    leaves_after: int | None


def crowd() -> list[Client]:
    draw = random.Random(17)
    made = []
    for i in range(CLIENTS):
        body = {
            "prompt": [draw.randrange(2, 250) for _ in range(draw.randrange(1, 25))],
            "max_tokens": draw.randrange(40, 100), "ignore_eos": True, "seed": i, "stream": i % 4 != 0,
            "temperature": 0.0 if i % 2 else 0.8,
        }  # fmt: skip
        made.append(Client(body, draw.randrange(30) if i % 3 == 1 and i % 4 else None))
    return made


async def ask(http: httpx.AsyncClient, client: Client) -> str | None:
    """The answer's text; None for a client that left."""
    if not client.body["stream"]:
        answer = await http.post("/v1/completions", json=client.body)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["text"]
    pieces: list[str] = []
    async with http.stream("POST", "/v1/completions", json=client.body) as stream:
        assert stream.status_code == 200
        count = 0
        async for line in stream.aiter_lines():
            if client.leaves_after is not None and count >= client.leaves_after:
                return None
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                pieces.append(event["choices"][0]["text"])
                count += 1
    return "".join(pieces)


async def ask_all(url: str, clients: list[Client], at_once: int) -> list[str | None]:
    gate = asyncio.Semaphore(at_once)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=httpx.Limits(max_connections=None)) as http:

        async def one(client: Client) -> str | None:
            async with gate:
                return await ask(http, client)

        return await asyncio.gather(*map(one, clients))


@pytest.mark.parametrize("executor", ["uni", "mp"])
def test_a_crowd(serve, until, tiny_llama: str, executor: str) -> None:
    options = (
        "--device", "cpu", "--dtype", "float32", "--max-num-seqs", "16", "--max-num-batched-tokens", "64",
        "--num-gpu-blocks-override", str(BLOCKS), "--max-model-len", "128", "--distributed-executor-backend", executor,
        "--disable-uvicorn-access-log",
    )  # fmt: skip
    clients = crowd()
    with serve(tiny_llama, *options) as started:
        url = started.wait_ready()
        together = asyncio.run(ask_all(url, clients, CLIENTS))

        def metric(name: str) -> float:
            found = re.findall(rf"^turret:{name}{{[^}}]*}} (\S+)$", httpx.get(f"{url}/metrics").text, re.MULTILINE)
            return sum(map(float, found))

        until(lambda: metric("num_requests_running") + metric("num_requests_waiting") == 0, 30)
        assert metric("kv_cache_usage_perc") == 0, "blocks were lost"
        assert metric("num_preemptions_total") > 0, "the cache was meant to be too small"
        assert metric("request_success_total") == CLIENTS
        stayed = [client for client in clients if client.leaves_after is None]
        alone = asyncio.run(ask_all(url, stayed, 1))
        assert alone == [text for text, client in zip(together, clients, strict=True) if client.leaves_after is None]
        assert httpx.get(f"{url}/health").status_code == 200
        assert "Traceback" not in started.said and "WARNING" not in started.said
