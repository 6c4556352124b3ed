"""Mixed load: long and short prompts, whole and streamed, bad requests, clients that hang up or dawdle.

Owns: what is sent, and what counts as a right answer to it. Knows nothing of servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from load.client import Answer, Target, ask

__all__ = ["Tally", "keep_asking"]

WORDS = ("the", "small", "river", "runs", "under", "an", "old", "bridge", "and", "Straße", "日本", "🙂", "f()", "12.5")
BAD: tuple[tuple[str, bytes], ...] = (
    ("/v1/completions", b"{"),
    ("/v1/completions", b'{"prompt": 5}'),
    ("/v1/completions", b'{"prompt": "", "max_tokens": 4}'),
    ("/v1/completions", b'{"prompt": [999999999], "max_tokens": 4}'),
    ("/v1/completions", b'{"prompt": "x", "temperature": NaN}'),
    ("/v1/completions", b'{"prompt": "x", "max_tokens": 99999999}'),
    ("/v1/completions", b'{"prompt": "x", "n": 999999}'),
    ("/v1/completions", b'{"prompt": "\xff\xfe"}'),
    ("/v1/completions", b"[" * 5000),
    ("/v1/chat/completions", b'{"messages": []}'),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": 7}]}'),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x"}], "model": "nobody"}'),
    ("/no/such/route", b"{}"),
)
"""Requests that must be answered with a 4xx."""


@dataclass
class Tally:
    """What came of everything that was sent."""

    sent: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        """Something that should not have happened; the first hundred are kept."""
        self.sent["wrong"] += 1
        if len(self.wrong) < 100:
            self.wrong.append(text)


async def keep_asking(target: Target, seed: int, tally: Tally, going: Callable[[], bool]) -> None:
    """One client: a request after the other, of a kind drawn by chance, until `going` says no."""
    draw = random.Random(seed)
    kinds = {"whole": 30, "streamed": 30, "left": 15, "bad": 15, "half": 5, "scrape": 5}
    makers = {"whole": _whole, "streamed": _streamed, "left": _left, "bad": _bad, "half": _half, "scrape": _scrape}
    while going():
        (kind,) = draw.choices(list(kinds), list(kinds.values()))
        tally.sent[kind] += 1
        await makers[kind](target, draw, tally)


def _text(draw: random.Random, longest: int) -> str:
    count = draw.choice((3, 20, 100, longest))
    return " ".join(draw.choice(WORDS) for _ in range(count))


def _body(draw: random.Random, stream: bool) -> tuple[str, dict[str, Any]]:
    common: dict[str, Any] = {
        "stream": stream, "max_tokens": draw.choice((1, 4, 16, 48)), "temperature": draw.choice((0, 0.8)),
    }  # fmt: skip
    if common["temperature"]:
        common["n"] = draw.choice((1, 1, 1, 3))
    if draw.random() < 0.2:
        common["stop"] = [draw.choice(WORDS), "\n"]
    if draw.random() < 0.5:
        return "/v1/completions", {**common, "prompt": _text(draw, 600)}
    return "/v1/chat/completions", {**common, "messages": [{"role": "user", "content": _text(draw, 600)}]}


def _good(answer: Answer, tally: Tally, what: str) -> None:
    tally.statuses[answer.status] += 1
    if answer.status not in (200, 429, 503) or not answer.complete:
        tally.fault(f"{what}: status {answer.status}, complete {answer.complete}: {answer.body[:200]!r}")


async def _whole(target: Target, draw: random.Random, tally: Tally) -> None:
    path, body = _body(draw, stream=False)
    answer = await ask(target, path, body)
    _good(answer, tally, "whole")
    if answer.status == 200 and len(json.loads(answer.body)["choices"]) != body.get("n", 1):
        tally.fault("whole: choices are missing")


async def _streamed(target: Target, draw: random.Random, tally: Tally) -> None:
    path, body = _body(draw, stream=True)
    answer = await ask(target, path, body)
    _good(answer, tally, "streamed")
    if b'"error":' in answer.body and answer.status == 200:
        tally.fault(f"streamed: {answer.body[:200]!r}")


async def _left(target: Target, draw: random.Random, tally: Tally) -> None:
    """Hang up after some events, or before any answer."""
    path, body = _body(draw, stream=draw.random() < 0.7)
    body["max_tokens"], body["ignore_eos"] = 200, True
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ask(target, path, body, leave_after=draw.randint(1, 5)), draw.uniform(0.0, 2.0))


async def _bad(target: Target, draw: random.Random, tally: Tally) -> None:
    path, body = draw.choice(BAD)
    answer = await ask(target, path, body)
    tally.statuses[answer.status] += 1
    if not 400 <= answer.status < 500:
        tally.fault(f"bad: {body[:60]!r} was answered {answer.status}: {answer.body[:200]!r}")


async def _half(target: Target, draw: random.Random, tally: Tally) -> None:
    """Half a request, then gone."""
    _, writer = await asyncio.open_connection(target.host, target.port)
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"
    writer.write(head[: draw.randint(1, len(head))])
    await asyncio.sleep(draw.uniform(0.0, 0.5))
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def _scrape(target: Target, draw: random.Random, tally: Tally) -> None:
    answer = await ask(target, draw.choice(("/metrics", "/health", "/v1/models")), None)
    tally.statuses[answer.status] += 1
    if answer.status != 200:
        tally.fault(f"scrape: {answer.status}")

