"""What a step costs besides the model: schedule, commit, frames, client.

An engine in a process of its own with a model that costs (almost) nothing serves 1 and 32 streams, flat out and at the
pace of a model whose step takes 5 ms. For each it prints, in microseconds a step: the wall time beyond the model's, and
the CPU time of the engine's process and of the client's. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time

import uvloop

from turret.engine import EngineClient, EngineProcess, ProcessLink
from turret.messages import Request
from turret.sampling import SamplingParams

FACTORY = "turret.testing.null_engine:build_null_engine"


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, all its threads (the clock that clock_getcpuclockid(3) names)."""
    return time.clock_gettime((~pid << 3) | 2)


async def read(client: EngineClient, request: Request) -> int:
    """Tokens of one stream."""
    count = 0
    async with client.submit(request) as stream:
        async for event in stream:
            count += len(event.token_ids)
    return count


async def measure(batch: int, steps: int, step_seconds: float, async_depth: int) -> dict[str, float]:
    """Microseconds a step over `steps` steps of `batch` streams."""
    config = {"step_seconds": step_seconds, "async_depth": async_depth, "num_blocks": 65536}
    client = EngineClient(ProcessLink(process := EngineProcess(FACTORY, json.dumps(config))))
    await client.start()

    def requests(name: str, count: int) -> list[Request]:
        params = SamplingParams(ignore_eos=True)
        return [
            Request(request_id=f"{name}{i}", prompt_token_ids=[i + 1] * 64, sampling=params, max_tokens=count, seed=i)
            for i in range(batch)
        ]

    await asyncio.gather(*[read(client, r) for r in requests("warm", 50)])
    began, engine, own = time.perf_counter(), cpu_seconds(process.pid), cpu_seconds(os.getpid())
    counts = await asyncio.gather(*[read(client, r) for r in requests("r", steps)])
    wall, engine, own = (time.perf_counter() - began, cpu_seconds(process.pid) - engine, cpu_seconds(os.getpid()) - own)
    if counts != [steps] * batch:
        raise RuntimeError("tokens were lost")
    await client.shutdown()
    return {
        "overhead_us": round((wall / steps - step_seconds) * 1e6, 1),
        "engine_cpu_us": round(engine / steps * 1e6, 1),
        "client_cpu_us": round(own / steps * 1e6, 1),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--async-depth", type=int, default=2)
    options = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for batch in (1, 32):
        for pace, step_seconds in (("flat_out", 0.0), ("5ms_model", 0.005)):
            figures[f"batch_{batch}_{pace}"] = line = uvloop.run(
                measure(batch, options.steps, step_seconds, options.async_depth)
            )
            print(f"batch {batch:2d} {pace}: {line}", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
