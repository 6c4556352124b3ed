"""`turret serve` of a virtual environment, for the length of a test."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from venvs import Venv

DEADLINE = 180.0
KV_BYTES = str(32 * 1024 * 1024)


@dataclass(frozen=True)
class Served:
    """A server that answers. `pid` is the front process."""

    url: str
    pid: int

    def complete(self, *, key: str = "", path: str = "completions", **body: Any) -> dict[str, Any]:
        """One answer of /v1/completions, or of another route under /v1."""
        data = json.dumps({"max_tokens": 6, "temperature": 0, **body}).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        request = urllib.request.Request(f"{self.url}/v1/{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as exc:
            raise AssertionError(exc.read().decode()) from exc


@contextmanager
def serve(venv: Venv, log: Path, port: int, *argv: str, **extra: str) -> Iterator[Served]:
    """Start, wait until it is healthy, and stop with Ctrl-C; its output goes to `log`."""
    options = ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "128"]
    options += ["--kv-cache-memory-bytes", KV_BYTES]
    command = [venv.python, "-m", "turret.cli.main", "serve", *argv, *options]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env={**venv.environment, **extra}, cwd=venv.root, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait(process, f"http://127.0.0.1:{port}/health", log)
            yield Served(f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Until /health answers; fails with the log when the server ends or takes too long."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended:\n{log.read_text()}"
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)  # a poll of another process, bounded by the deadline
    raise AssertionError(f"no answer within {DEADLINE:.0f} s:\n{log.read_text()}")
