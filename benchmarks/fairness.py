"""What one tenant's flood does to another's time to first token: policy `fcfs` beside `fair`.

A null engine (real scheduler, KV manager and client; steps that only take their time) serves tenant "quiet", one
request after the other with a pause between: first alone, then while tenant "flood" keeps hundreds of requests waiting.
Prints the time to first token of each case and its ratio to the lone value; the last line is JSON. The promise is a
ratio of at most 2 under `fair`.

    python benchmarks/fairness.py [--requests 20] [--flood 300]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import time

import msgspec

from turret.engine import EngineClient, ThreadLink
from turret.messages import Request
from turret.sampling import SamplingParams
from turret.testing.null_engine import NullConfig, build_null_engine

STEP_SECONDS = 0.004
TOKEN_SECONDS = 0.00001
BUDGET = 1024
NUM_SEQS = 128
QUIET_PROMPT, QUIET_OUTPUT = 4000, 8
PAUSE = 0.1
"""Seconds between two requests of the quiet tenant, so that it asks for less than half of what the engine can do."""
FLOOD_PROMPT, FLOOD_OUTPUT = 600, 120


def make_request(tenant: str, number: int, length: int, output: int) -> Request:
    """A request whose prompt shares no prefix with any other."""
    draw = random.Random(f"{tenant}{number}")
    return Request(
        request_id=f"{tenant}-{number}",
        prompt_token_ids=[draw.randrange(1000) for _ in range(length)],
        sampling=SamplingParams(max_tokens=output, ignore_eos=True),
        max_tokens=output,
        seed=0,
        tenant=tenant,
        arrival_time=time.time(),
    )


async def time_to_first(client: EngineClient, request: Request) -> float:
    """Seconds to the first token; the rest of the answer is read, too."""
    began, first = time.perf_counter(), 0.0
    async with client.submit([request]) as stream:
        async for _ in stream:
            first = first or time.perf_counter() - began
    return first


async def keep_flooding(client: EngineClient, numbers: itertools.count[int], lengths: random.Random) -> None:
    """One of the many that send a request as soon as the last is answered."""
    while True:
        length = lengths.randint(FLOOD_PROMPT // 2, FLOOD_PROMPT * 3 // 2)
        await time_to_first(client, make_request("flood", next(numbers), length, FLOOD_OUTPUT))


async def measure(policy: str, requests: int, flood: int) -> tuple[list[float], list[float]]:
    """Times of the quiet tenant alone and in the flood."""
    config = NullConfig(
        policy=policy, step_seconds=STEP_SECONDS, token_seconds=TOKEN_SECONDS, max_num_batched_tokens=BUDGET,
        max_num_seqs=NUM_SEQS, num_blocks=1 << 14, max_model_len=1 << 14,
    )
    client = EngineClient(ThreadLink(build_null_engine, msgspec.json.encode(config).decode()))
    await client.start()
    numbers = itertools.count()

    async def times() -> list[float]:
        found = []
        for _ in range(requests):
            found.append(await time_to_first(client, make_request("quiet", next(numbers), QUIET_PROMPT, QUIET_OUTPUT)))
            await asyncio.sleep(PAUSE)
        return found

    alone = await times()
    lengths = random.Random(0)
    crowd = [asyncio.create_task(keep_flooding(client, numbers, lengths)) for _ in range(flood)]
    await asyncio.sleep(1.0)  # the flood fills every place first
    flooded = await times()
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    await client.shutdown()
    return alone, flooded


def main() -> None:
    """Measure both policies and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20, help="requests of the quiet tenant")
    parser.add_argument("--flood", type=int, default=300, help="requests that the flood keeps open")
    args = parser.parse_args()
    result: dict[str, float] = {"requests": args.requests, "flood": args.flood}
    print(f"{'policy':8} {'alone ms':>10} {'flooded ms':>11} {'worst ms':>10} {'ratio':>7} {'worst':>7}")
    for policy in ("fcfs", "fair"):
        # The control need not be precise, and waits long for each of its requests.
        count = args.requests if policy == "fair" else max(2, args.requests // 5)
        alone, flooded = asyncio.run(measure(policy, count, args.flood))
        lone = statistics.median(alone)
        middle, worst = statistics.median(flooded), max(flooded)
        print(f"{policy:8} {lone * 1e3:10.1f} {middle * 1e3:11.1f} {worst * 1e3:10.1f} {middle / lone:7.2f} "
              f"{worst / lone:7.2f}")
        result[f"{policy}_alone_ms"] = round(lone * 1e3, 2)
        result[f"{policy}_flooded_ms"] = round(middle * 1e3, 2)
        result[f"{policy}_ratio"] = round(middle / lone, 2)
        result[f"{policy}_worst_ratio"] = round(worst / lone, 2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
