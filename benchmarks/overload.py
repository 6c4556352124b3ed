"""Goodput under four times the load that the server can do, and how fast it says no.

A server whose model is a hash but whose steps take their time (real front, real scheduler, real engine process) is
first loaded by as many clients as it has places, each asking again as soon as it is answered: its peak. Then requests
arrive by the clock, as a Poisson process, at a multiple of that rate, whatever becomes of those before them. Goodput
is the rate of tokens in complete answers. The promises: at four times the load goodput is at least 95% of the peak, and
the median refusal is answered within 50 ms; every request is answered one way or the other.

    python benchmarks/overload.py [--seconds 15] [--factor 4]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections import Counter
from typing import Any

from load.client import Answer, Target, ask
from load.processes import serving

PLACES = 16
STEP_SECONDS, TOKEN_SECONDS = 0.01, 0.0002
TOKENS = 32
QUEUE = 32
"""Requests that may wait: two turns of all places."""
REFUSED = (429, 503)


def body(number: int) -> dict[str, Any]:
    """A request whose prompt shares no prefix with any other."""
    draw = random.Random(number)
    prompt = [draw.randrange(100, 40000) for _ in range(draw.randint(16, 96))]
    return {"prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "seed": number}


def tokens_of(answers: list[Answer]) -> int:
    """Tokens of complete answers."""
    return TOKENS * sum(a.status == 200 and a.complete for a in answers)


async def peak(target: Target, seconds: float) -> float:
    """Tokens a second with every place busy and nobody waiting long."""
    numbers, ends = iter(range(1 << 30)), time.perf_counter() + seconds
    answers: list[Answer] = []

    async def one() -> None:
        while time.perf_counter() < ends:
            answers.append(await ask(target, "/v1/completions", body(next(numbers))))

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(PLACES + PLACES // 2)))
    return tokens_of(answers) / (time.perf_counter() - began)


async def flood(target: Target, rate: float, seconds: float) -> tuple[list[Answer], float]:
    """Requests at `rate` a second; the answers of those that came in time to matter, and how long it took."""
    draw, calls = random.Random(0), []
    began = due = time.perf_counter()
    number = 1 << 31
    while due < began + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        calls.append(asyncio.create_task(ask(target, "/v1/completions", body(number))))
        number += 1
        due += draw.expovariate(rate)
    answers = await asyncio.gather(*calls)
    return list(answers), time.perf_counter() - began


def report(answers: list[Answer], seconds: float, best: float, rate: float) -> dict[str, Any]:
    """The figures of a flood."""
    statuses = Counter(a.status for a in answers)
    refusals = [a.seconds for a in answers if a.status in REFUSED]
    goodput = tokens_of(answers) / seconds
    result = {
        "offered_requests_per_second": round(rate, 1),
        "peak_tokens_per_second": round(best, 1),
        "goodput_tokens_per_second": round(goodput, 1),
        "goodput_share_of_peak": round(goodput / best, 4),
        "answered": len(answers) - statuses[0],
        "unanswered": statuses[0],
        "refused": len(refusals),
        "refusal_ms_p50": round(1e3 * statistics.median(refusals), 2) if refusals else None,
        "refusal_ms_p99": round(1e3 * sorted(refusals)[int(0.99 * len(refusals))], 2) if refusals else None,
        "server_errors": sum(count for status, count in statuses.items() if status >= 500 and status != 503),
    }
    result["kept"] = bool(
        result["goodput_share_of_peak"] >= 0.95 and refusals and result["refusal_ms_p50"] <= 50 and not statuses[0]
        and not result["server_errors"]
    )
    return result


def main() -> None:
    """Measure and print; exit status 1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each part")
    parser.add_argument("--factor", type=float, default=4.0, help="offered load, in capacities")
    args = parser.parse_args()
    null = json.dumps({
        "step_seconds": STEP_SECONDS, "token_seconds": TOKEN_SECONDS, "max_num_seqs": PLACES, "num_blocks": 1 << 12,
    })  # fmt: skip
    with serving([sys.executable, "-m", "load.null_server", null, "--max-queue-requests", str(QUEUE)]) as server:
        target = Target.of(server.url)
        best = asyncio.run(peak(target, args.seconds))
        rate = args.factor * best / TOKENS
        answers, seconds = asyncio.run(flood(target, rate, args.seconds))
    result = report(answers, seconds, best, rate)
    for name, value in result.items():
        print(f"{name:30} {value}")
    print(json.dumps(result))
    if not result["kept"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
