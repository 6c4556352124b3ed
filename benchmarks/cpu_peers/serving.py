"""The same work behind HTTP: each engine's server under 1, 8 and 32 clients, in alternation.

Owns: how servers are started and put aside. Knows nothing of what they compute.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpu_peers.cells import SERVING_PEERS
from cpu_peers.figures import Rate, Record
from cpu_peers.load import Clients, tokens_per_second
from cpu_peers.offline import undisturbed
from cpu_peers.processes import Machine, Paths, vllm_environment

__all__ = ["CLIENTS", "Load", "Server", "free_port", "measure"]

CLIENTS: Mapping[str, int] = {"served_1": 1, "served_8": 8, "served_32": 32}
_START_SECONDS = 400.0


class ServerError(RuntimeError):
    """A server did not come up."""


@dataclass(frozen=True, slots=True)
class Load:
    """Which cells, and how often."""

    cells: Sequence[str]
    rounds: int


def free_port() -> int:
    """A port of the loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server_command(name: str, weights: Path, port: int, paths: Paths, machine: Machine) -> list[str]:
    """Each server with 32 places of 512 tokens, without a prefix cache."""
    where = ["--host", "127.0.0.1", "--port", str(port)]
    python = str(paths.interpreters.get(name, ""))
    if name == "llamacpp":
        threads = str(machine.threads)
        return [str(paths.llama_server), "-m", str(weights), *where, "-t", threads, "-tb", threads, "-np", "32", "-c",
                str(32 * 512), "-b", "2048", "-ub", "512", "--no-webui", "--cache-ram", "0"]  # fmt: skip
    shared = ["--served-model-name", "m", "--max-model-len", "1024", "--max-num-seqs", "32",
              "--no-enable-prefix-caching", *where]  # fmt: skip
    if name == "vllm":
        return [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(weights), "--dtype", "bfloat16",
                *shared]  # fmt: skip
    blocks = ["--num-gpu-blocks-override", str(32 * 512 // 16 + 1)]
    return [python, "-m", "turret.cli.main", "serve", str(weights), *shared, *blocks]


class Server:
    """A server in its own process group."""

    def __init__(self, name: str, command: Sequence[str], port: int, log: Path, env: Mapping[str, str]) -> None:
        self.name, self.port, self._log_path = name, port, log
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            command, stdout=self._log, stderr=self._log, env={**os.environ, **env}, start_new_session=True
        )

    def ready(self) -> None:
        """Wait until it answers and has served once, then put it aside."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"the server of {self.name} did not come up; see {self._log_path}")
            time.sleep(0.2)
        self._load(Clients(1, 1, 0))
        self._load(Clients(32, 32, 1))
        self._signal(signal.SIGSTOP)

    def run(self, clients: int, seed: int) -> float:
        """Output tokens/s over two requests a client, four at least; the server rests before and after."""
        self._signal(signal.SIGCONT)
        try:
            return self._load(Clients(clients, max(4, 2 * clients), seed))
        finally:
            self._signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait(20)
        self._log.close()

    def _load(self, clients: Clients) -> float:
        extra: dict[str, Any] = {"cache_prompt": False} if self.name == "llamacpp" else {}
        return tokens_per_second(self.port, clients, extra)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            print(f"the server of {self.name} is gone", file=sys.stderr)


def measure(group: tuple[str, str, list[str]], load: Load, paths: Paths, machine: Machine, record: Record) -> None:
    """All served cells of a model in a format."""
    model, form, peers = group
    servers: list[Server] = []
    try:
        for name in ("turret", *(peer for peer in peers if peer in SERVING_PEERS)):
            if name == "llamacpp" and paths.llama_server is None:
                print(f"{model} {form}: llama-server is not set up", file=sys.stderr)
                continue
            server = _started(name, (model, form), paths, machine)
            servers.append(server)
            try:
                server.ready()
            except (ServerError, ExceptionGroup) as error:
                print(f"{model} {form}: {name}: {error}", file=sys.stderr)
                servers.pop().close()
        for number in range(load.rounds):
            for cell in load.cells:
                turn = number % len(servers)
                for server in (*servers[turn:], *servers[:turn]):
                    clients = CLIENTS[cell]
                    seed = 7 + clients + 100 * number
                    rate, others = undisturbed(lambda s=server, c=clients, d=seed: s.run(c, d), record.patience)
                    record.add(Rate(record.run, number, model, form, server.name, cell, round(rate, 1), others))
    finally:
        for server in servers:
            server.close()


def _started(name: str, group: tuple[str, str], paths: Paths, machine: Machine) -> Server:
    model, form = group
    folder = paths.models / model
    weights = folder / (f"{form}.gguf" if name == "llamacpp" or form != "bf16" else "hf")
    port = free_port()
    env = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if name == "vllm":
        env.update(vllm_environment(machine))
    command = server_command(name, weights, port, paths, machine)
    return Server(name, command, port, paths.logs / f"{model}-{form}-{name}-server.log", env)
