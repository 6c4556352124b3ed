"""From the command to the first token: `turret serve` on the demo model, torch import included.

Starts the server as a user would, asks for one token the moment the port answers, and repeats: each round a first start
over an empty cache of packed weights, which packs and keeps them, and a second one, which reads them. Beside it, what
`turret --help` takes over a bare `python -c pass`, in alternation. The last line is JSON: seconds to the first token
(each run, medians of first and second starts), how long until the port answered, and the help page's seconds over
a bare interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

REQUEST = {"model": "demo", "prompt": "The capital of France is", "max_tokens": 1, "temperature": 0}


def first_token(port: int, deadline: float) -> tuple[float, float]:
    """Seconds (since epoch) when the port first answered and when the first token came."""
    url = f"http://127.0.0.1:{port}"
    body = json.dumps(REQUEST).encode()
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                answered = time.time()
                break
        except (urllib.error.URLError, ConnectionError):
            if time.time() > deadline:
                raise TimeoutError(f"no answer on port {port}") from None
            time.sleep(0.02)
    request = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = json.load(answer)["choices"][0]["text"]
    if not text:
        raise RuntimeError("the first token was empty")
    return answered, time.time()


def one_start(port: int, cache: Path) -> dict[str, float]:
    """Start, ask, wait until packed weights are kept, stop."""
    command = [str(Path(sys.executable).parent / "turret"), "serve", "demo", "--host", "127.0.0.1", "--port", str(port)]
    began = time.time()
    environment = {**os.environ, "TURRET_CACHE_DIR": str(cache)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as server:
        try:
            answered, token = first_token(port, began + 120)
            while not list(cache.glob("packed/*.packed")) and time.time() < token + 30:
                time.sleep(0.1)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    return {"port_answers_s": round(answered - began, 2), "first_token_s": round(token - began, 2)}


def help_over_bare(rounds: int = 7) -> float:
    """Seconds that `turret --help` takes beyond an interpreter that does nothing: the difference of the medians."""
    commands = ([str(Path(sys.executable).parent / "turret"), "--help"], [sys.executable, "-c", "pass"])
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for command, taken in zip(commands, seconds, strict=True):
            began = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            taken.append(time.perf_counter() - began)
    return round(statistics.median(seconds[0]) - statistics.median(seconds[1]), 3)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--port", type=int, default=8123)
    args = parser.parse_args()
    over_bare = help_over_bare()
    print(f"turret --help: {over_bare} s over python -c pass", flush=True)
    runs: dict[str, list[dict[str, float]]] = {"first": [], "second": []}
    for number in range(args.runs):
        with tempfile.TemporaryDirectory() as folder:
            for kind, made in runs.items():
                made.append(one_start(args.port, Path(folder)))
                print(f"round {number + 1}/{args.runs}, {kind} start: {made[-1]}", flush=True)
    first, second = (statistics.median(r["first_token_s"] for r in made) for made in runs.values())
    figures = {"runs": runs, "first_start_s": first, "second_start_s": second, "help_over_bare_python_s": over_bare}
    met = first <= 4 and second <= 3 and over_bare <= 0.3
    print(json.dumps({"benchmark": "startup", **figures, "met": met}))


if __name__ == "__main__":
    main()
