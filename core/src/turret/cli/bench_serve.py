"""`turret bench serve`: many streams against any server with the OpenAI API, and what they took.

Owns: the load and its clocks. Knows nothing of the server but the API; prompts are random words, so that no tokenizer
is needed, and token counts are the server's own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from tqdm import tqdm

from turret.cli.asking import CommandParser, at_least
from turret.cli.bench_report import Report
from turret.cli.partner import RemotePartner

__all__ = ["serve"]

WORDS = ("time", "house", "river", "light", "small", "green", "seven", "under", "music", "stone", "write", "north")


@dataclass(slots=True)
class _Call:
    """One request's times in seconds, and what came of it. `failure` is a status or an exception's name."""

    first: float = 0.0
    total: float = 0.0
    gaps: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0
    failure: str = ""


def serve(argv: Sequence[str]) -> int:
    """Measure and print; exit status 1 when no request succeeded."""
    args = _parser().parse_args(list(argv))
    key = args.api_key or os.environ.get("TURRET_API_KEY") or os.environ.get("OPENAI_API_KEY")
    with RemotePartner(args.url, key, args.model) as partner:
        model = partner.model
    began = time.perf_counter()
    calls = asyncio.run(_load(args, model, key))
    report = _summed(args, model, calls, time.perf_counter() - began)
    report.show()
    return 0 if any(not call.failure for call in calls) else 1


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="turret bench serve", description=serve.__doc__, allow_abbrev=False)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server (default: %(default)s)")
    parser.add_argument("--api-key", help="its key (default: TURRET_API_KEY, then OPENAI_API_KEY)")
    parser.add_argument("--model", help="model name (default: the server's first)")
    parser.add_argument("--endpoint", choices=("completions", "chat"), default="completions", help="which API")
    parser.add_argument("--num-prompts", type=at_least(1), default=100, help="requests (default: %(default)s)")
    parser.add_argument("--request-rate", type=_rate, default=math.inf, metavar="X",
                        help="requests a second, at random times; inf sends all at once (default: %(default)s)")
    parser.add_argument("--max-concurrency", type=at_least(1), help="most requests open at a time")
    parser.add_argument("--input-len", type=at_least(1), default=128, help="words a prompt (default: %(default)s)")
    parser.add_argument("--output-len", type=at_least(1), default=64, help="tokens an answer (default: %(default)s)")
    parser.add_argument("--no-ignore-eos", action="store_true",
                        help="leave out the field ignore_eos, which not every server knows")
    parser.add_argument("--seed", type=int, default=0, help="of prompts and arrival times (default: %(default)s)")
    return parser


def _rate(text: str) -> float:
    if not (rate := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return rate


async def _load(args: argparse.Namespace, model: str, key: str | None) -> list[_Call]:
    """All calls, started at random times of the wanted rate."""
    draw = random.Random(args.seed)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    gate = asyncio.Semaphore(args.max_concurrency or args.num_prompts)
    base = args.url.rstrip("/").removesuffix("/v1") + "/v1"
    url = f"{base}/{'chat/completions' if args.endpoint == 'chat' else 'completions'}"
    with tqdm(total=args.num_prompts, unit="request", disable=None, dynamic_ncols=True) as bar:
        async with httpx.AsyncClient(headers=headers, limits=limits, timeout=None) as client:

            async def one(body: dict[str, Any]) -> _Call:
                async with gate:
                    call = await _call(client, url, body)
                bar.update()
                return call

            tasks = []
            for _ in range(args.num_prompts):
                tasks.append(asyncio.create_task(one(_body(args, model, draw))))
                if math.isfinite(args.request_rate):
                    await asyncio.sleep(draw.expovariate(args.request_rate))
            return list(await asyncio.gather(*tasks))


def _body(args: argparse.Namespace, model: str, draw: random.Random) -> dict[str, Any]:
    text = " ".join(draw.choice(WORDS) for _ in range(args.input_len))
    body: dict[str, Any] = {
        "model": model, "max_tokens": args.output_len, "temperature": 0, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    body |= {"messages": [{"role": "user", "content": text}]} if args.endpoint == "chat" else {"prompt": text}
    return body if args.no_ignore_eos else {**body, "ignore_eos": True}


async def _call(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> _Call:
    """One stream, read to its end."""
    call, began, last = _Call(), time.perf_counter(), 0.0
    try:
        async with client.stream("POST", url, json=body) as answer:
            if answer.status_code != 200:
                return _Call(failure=str(answer.status_code))
            async for line in answer.aiter_lines():
                if not line.startswith("data:") or line.endswith("[DONE]"):
                    continue
                chunk, now = json.loads(line[5:]), time.perf_counter()
                if "error" in chunk:
                    return _Call(failure="error in stream")
                if usage := chunk.get("usage"):
                    call.prompt_tokens, call.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]
                if not any(_has_text(choice) for choice in chunk.get("choices", ())):
                    continue
                if last:
                    call.gaps.append(now - last)
                else:
                    call.first = now - began
                last = now
    except (httpx.HTTPError, ValueError) as error:
        return _Call(failure=type(error).__name__)
    call.total = time.perf_counter() - began
    # Without usage the chunks are counted.
    call.output_tokens = call.output_tokens or len(call.gaps) + bool(last)
    return call


def _has_text(choice: dict[str, Any]) -> bool:
    return bool(choice.get("text") or (choice.get("delta") or {}).get("content"))


def _summed(args: argparse.Namespace, model: str, calls: list[_Call], seconds: float) -> Report:
    good = [call for call in calls if not call.failure]
    output = sum(call.output_tokens for call in good)
    report = Report()
    report.add(
        measurement="serve", model=model, endpoint=args.endpoint, requests=len(calls), succeeded=len(good),
        failures=dict(Counter(call.failure for call in calls if call.failure)), seconds=seconds,
        prompt_tokens=sum(call.prompt_tokens for call in good), output_tokens=output,
        requests_per_second=len(good) / seconds, output_tokens_per_second=output / seconds,
    )  # fmt: skip
    report.spread("first_token_ms", [call.first * 1e3 for call in good if call.first])
    report.spread("inter_chunk_ms", [gap * 1e3 for call in good for gap in call.gaps])
    per_token = [(c.total - c.first) / (c.output_tokens - 1) * 1e3 for c in good if c.first and c.output_tokens > 1]
    report.spread("per_output_token_ms", per_token)
    report.spread("request_ms", [call.total * 1e3 for call in good])
    return report
