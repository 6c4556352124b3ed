"""CPU that the HTTP front spends per token and request, with a null model: 64 streams at a time.

A server whose model is a hash of the prompt (real front, real engine process, no tensors) streams chat completions to
64 clients. The CPU time of the front's process alone is read before and after: once for answers of one token, which
gives the cost of a request, once for long ones, which gives the cost of a further token. The promise is at most 60 us
of CPU per token and request, everything counted.

With --peer LITELLM the same is measured of LiteLLM's proxy, another OpenAI-compatible front that pip can install, whose
mock model is as null as ours; LITELLM is the `litellm` program of an environment of its own
(python -m venv V && V/bin/pip install 'litellm[proxy]' gives V/bin/litellm).

    python benchmarks/frontend.py [--tokens 256] [--rounds 3] [--peer V/bin/litellm]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from load.client import Target, ask
from load.processes import cpu_seconds, serving

STREAMS = 64
STEP_SECONDS = 0.008
PORT_OF_PEER = 18473
PEER_CONFIG = """
model_list:
  - model_name: "1"
    litellm_params: {{model: openai/null, api_key: none, mock_response: "one"}}
  - model_name: "{tokens}"
    litellm_params: {{model: openai/null, api_key: none, mock_response: "{text}"}}
"""
PEER_ALONE = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""It listens on the loopback interface, for as long as this takes, and needs nothing from anywhere else."""

Body = Callable[[int], dict[str, Any]]


async def crowd(target: Target, body: dict[str, Any], requests: int) -> int:
    """Send `requests`, 64 at a time; the events that came."""
    left = iter(range(requests))

    async def one() -> int:
        events = 0
        for _ in left:
            answer = await ask(target, "/v1/chat/completions", body)
            if answer.status != 200 or not answer.complete:
                sys.exit(f"the server answered {answer.status}: {answer.body[:300]!r}")
            events += answer.events
        return events

    return sum(await asyncio.gather(*(one() for _ in range(STREAMS))))


def cost(pid: int, url: str, body: dict[str, Any], requests: int) -> tuple[float, int]:
    """CPU seconds of the front, and events, of a crowd."""
    before = cpu_seconds([pid])
    events = asyncio.run(crowd(Target.of(url), body, requests))
    return cpu_seconds([pid]) - before, events


def measure(pid: int, url: str, body: Body, args: argparse.Namespace) -> dict[str, float]:
    """Microseconds per request of one token, per further token, and per token with everything counted."""
    cost(pid, url, body(args.tokens), STREAMS)  # warm
    short, _ = cost(pid, url, body(1), STREAMS * 8)
    per_request = short / (STREAMS * 8)
    whole, further = [], []
    for _ in range(args.rounds):
        spent, events = cost(pid, url, body(args.tokens), STREAMS)
        # Beside its tokens a stream has an event that ends it.
        tokens = max(1, events - STREAMS)
        whole.append(spent / tokens)
        further.append((spent - STREAMS * per_request) / tokens)
    return {
        "us_per_request": round(per_request * 1e6, 1),
        "us_per_further_token": round(statistics.median(further) * 1e6, 2),
        "us_per_token_all_counted": round(statistics.median(whole) * 1e6, 2),
    }


def measure_turret(args: argparse.Namespace) -> dict[str, float]:
    """Of turret's front."""
    null = json.dumps({"step_seconds": STEP_SECONDS, "num_blocks": 1 << 14, "max_num_seqs": STREAMS})

    def body(tokens: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": "Count as far as you can, please."}]
        return {"messages": messages, "max_tokens": tokens, "stream": True, "ignore_eos": True}

    with serving([sys.executable, "-m", "load.null_server", null]) as server:
        return measure(server.pid, server.url, body, args)


def measure_peer(args: argparse.Namespace) -> dict[str, float]:
    """Of LiteLLM's proxy, whose mock answer is cut into events of three characters."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"

        def body(tokens: int) -> dict[str, Any]:
            messages = [{"role": "user", "content": "Count as far as you can, please."}]
            return {"model": str(tokens), "messages": messages, "stream": True}

        config.write_text(PEER_CONFIG.format(tokens=args.tokens, text="".join(f"{i:03d}" for i in range(args.tokens))))
        command = [args.peer, "--config", str(config), "--host", "127.0.0.1", "--port", str(PORT_OF_PEER)]
        with serving(command, mark="running on", environment=PEER_ALONE) as server:
            return measure(server.pid, server.url, body, args)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=256, help="tokens of a long answer")
    parser.add_argument("--rounds", type=int, default=3, help="crowds of long answers; the median counts")
    parser.add_argument("--peer", help="LiteLLM's program, to measure beside")
    args = parser.parse_args()
    found = {"turret": measure_turret(args)}
    if args.peer:
        found["litellm"] = measure_peer(args)
    print(f"{'front':8} {'us/request':>12} {'us/further token':>17} {'us/token, all counted':>22}")
    for name, costs in found.items():
        print(f"{name:8} {costs['us_per_request']:12.1f} {costs['us_per_further_token']:17.2f} "
              f"{costs['us_per_token_all_counted']:22.2f}")
    result = {f"{name}_{key}": value for name, costs in found.items() for key, value in costs.items()}
    print(json.dumps({"streams": STREAMS, "tokens": args.tokens, **result}))


if __name__ == "__main__":
    main()
