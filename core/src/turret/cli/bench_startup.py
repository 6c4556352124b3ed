"""`turret bench startup`: from the command to the first token, as a user waits for it.

Owns: the child process and the clock. Knows nothing of what the server does meanwhile. The server listens on a Unix
socket of its own, so no port is taken.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
from tqdm import tqdm

from turret.cli.arguments import read_options
from turret.cli.asking import CommandParser, at_least
from turret.cli.bench_report import Report
from turret.cli.partner import server_answer
from turret.errors import ConfigError, TurretError

__all__ = ["startup"]

_PAUSE = 0.01
_TIMEOUT = 600.0


def startup(argv: Sequence[str]) -> int:
    """Start `turret serve` several times; seconds until the port answers and until the first token."""
    parser = CommandParser(
        prog="turret bench startup", description=startup.__doc__, allow_abbrev=False,
        usage="turret bench startup [MODEL] [OPTIONS] [options of turret serve]",
    )  # fmt: skip
    parser.add_argument("--num-runs", type=at_least(1), default=3, help="starts (default: %(default)s)")
    args, rest = parser.parse_known_args(list(argv))
    options = read_options(rest, {})
    if "uds" in options or "api_key" in options:
        raise ConfigError("turret bench startup listens on its own socket, without keys: leave --uds and --api-key out")
    found = [_start(rest) for _ in tqdm(range(args.num_runs), unit="start", disable=None)]
    report = Report()
    report.add(measurement="startup", model=options.get("model", "demo"), runs=args.num_runs)
    report.spread("answers_s", [answers for answers, _ in found])
    report.spread("first_token_s", [first for _, first in found])
    report.show()
    return 0


def _start(options: Sequence[str]) -> tuple[float, float]:
    """(seconds until /health answers, seconds until a token is there) of one start."""
    with tempfile.TemporaryDirectory() as directory:
        socket, log = str(Path(directory) / "s"), Path(directory) / "log"
        command = [sys.executable, "-m", "turret.cli.main", "serve", *options, "--uds", socket]
        began = time.perf_counter()
        with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as server:
            try:
                with httpx.Client(transport=httpx.HTTPTransport(uds=socket), base_url="http://turret") as client:
                    _wait(client, server, log)
                    answers = time.perf_counter() - began
                    model = server_answer(client.get("/v1/models"))["data"][0]["id"]
                    body = {"model": model, "prompt": "The", "max_tokens": 1, "temperature": 0}
                    server_answer(client.post("/v1/completions", json=body, timeout=_TIMEOUT))
                    return answers, time.perf_counter() - began
            finally:
                server.send_signal(signal.SIGTERM)


def _wait(client: httpx.Client, server: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers; raises its last words when it ends instead."""
    deadline = time.perf_counter() + _TIMEOUT
    while True:
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            if server.poll() is not None:
                lines = log.read_text(errors="replace").strip().splitlines() or ["nothing"]
                raise TurretError(f"the server ended with status {server.returncode}; it said: {lines[-1]}") from None
        if time.perf_counter() > deadline:
            raise TurretError(f"the server did not answer within {_TIMEOUT:.0f} s")
        time.sleep(_PAUSE)
