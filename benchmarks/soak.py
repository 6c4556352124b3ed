"""Half an hour of everything at once, then an account of what is left.

`turret serve demo` (a real model and all its processes) is asked by many clients for --minutes: long and short prompts,
whole and streamed answers, several choices, bad requests, clients that hang up at any moment or after half a request.
With --null the model is a hash instead, so that front end and scheduler see a hundred times as much.
Then the load stops. The promises: no block of the KV cache is still held and no request is open; memory of all
processes together grew by less than 2% after the warm-up (the first fifth); every request was answered; no status above
499 but 503.

    python benchmarks/soak.py [--minutes 30] [--clients 12] [--null] [OPTIONS OF TURRET SERVE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from load.client import Target, ask
from load.mixed import Tally, keep_asking
from load.processes import ServerProcess, family, resident_bytes, serving

WARM_SHARE = 0.2
SAMPLE_SECONDS = 2.0
SETTLE_SECONDS = 30.0
TURRET = str(Path(sys.executable).parent / "turret")
SERVE = [
    "serve", "demo", "--host", "127.0.0.1", "--port", "0", "--disable-uvicorn-access-log", "--max-model-len", "2048",
    "--kv-cache-memory-bytes", "256M",
]  # fmt: skip
NULL = json.dumps({
    "step_seconds": 0.002, "token_seconds": 0.00002, "num_blocks": 400, "max_num_seqs": 16, "max_model_len": 2048,
})  # fmt: skip
"""Few blocks: requests are preempted now and then."""


async def gauge(target: Target, name: str) -> float:
    """The sum over engines of one gauge."""
    text = (await ask(target, "/metrics", None)).body.decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"turret:{name}{{"))


async def load(server: ServerProcess, args: argparse.Namespace, tally: Tally) -> list[tuple[float, int]]:
    """The load, and the memory of all processes as it went: (second, bytes)."""
    target, began = Target.of(server.url), time.monotonic()
    ends = began + 60 * args.minutes
    clients = [keep_asking(target, seed, tally, lambda: time.monotonic() < ends) for seed in range(args.clients)]
    samples: list[tuple[float, int]] = []

    async def watch() -> None:
        while time.monotonic() < ends:
            samples.append((time.monotonic() - began, resident_bytes(family(server.pid))))
            if sys.stderr.isatty():
                at, size = samples[-1]
                print(f"\r{at:6.0f} s  {size >> 20} MiB  {dict(tally.sent)}", end="", file=sys.stderr)
            await asyncio.sleep(SAMPLE_SECONDS)

    await asyncio.gather(watch(), *clients)
    return samples


async def what_is_left(server: ServerProcess) -> dict[str, float]:
    """Gauges once nothing is asked any more; waits a while for the last answers to be dropped."""
    target = Target.of(server.url)
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        left = {name: await gauge(target, name) for name in names}
        if not any(left.values()) or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.2)


def growth(samples: list[tuple[float, int]], seconds: float) -> float:
    """By how much the last fifth's median of memory exceeds that of the fifth after the warm-up."""

    def between(low: float, high: float) -> float:
        return statistics.median(size for at, size in samples if low * seconds <= at < high * seconds)

    return between(1 - WARM_SHARE, 1.01) / between(WARM_SHARE, 2 * WARM_SHARE) - 1


def report(tally: Tally, left: dict[str, float], grown: float, megabytes: int) -> dict[str, Any]:
    """The figures; `kept` when every promise was."""
    result: dict[str, Any] = {
        "sent": dict(tally.sent), "statuses": {str(k): v for k, v in sorted(tally.statuses.items())},
        "memory_growth_percent": round(100 * grown, 2), "resident_mib": megabytes, **left,
        "unanswered": tally.statuses[0],
        "server_errors": sum(count for status, count in tally.statuses.items() if status >= 500 and status != 503),
    }  # fmt: skip
    broken = tally.wrong or any(left.values()) or grown >= 0.02 or result["unanswered"] or result["server_errors"]
    result["kept"] = not broken
    return result


def main() -> None:
    """Load, account, print; exit status 1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--null", action="store_true", help="a hash for a model")
    args, options = parser.parse_known_args()
    tally = Tally()
    command = [sys.executable, "-m", "load.null_server", NULL] if args.null else [TURRET, *SERVE]
    with serving([*command, *options], mark="ready") as server:
        samples = asyncio.run(load(server, args, tally))
        left = asyncio.run(what_is_left(server))
        log = [line for line in server.lines if " ERROR " in line or "Traceback" in line]
    result = report(tally, left, growth(samples, 60 * args.minutes), samples[-1][1] >> 20)
    for line in [*tally.wrong[:20], *log[:20]]:
        print(line)
    result["errors_in_log"] = len(log)
    print(json.dumps(result))
    if not result["kept"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
