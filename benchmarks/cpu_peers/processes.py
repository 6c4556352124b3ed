"""Engines as processes: started, given jobs, put aside while another one works, ended.

Owns: the processes. Knows how each engine is called, not what it does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cpu_peers.meter import resident_bytes

__all__ = ["Engine", "EngineError", "Machine", "Paths", "engine_command"]

HERE = Path(__file__).parent
PROTOTYPE_KINDS = {"bf16": "bf16", "q8_0": "q8", "q4_0": "q4"}


class EngineError(RuntimeError):
    """An engine did not start, or ended."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Where models and the interpreters of peers lie. A peer without an interpreter is left out."""

    models: Path
    interpreters: Mapping[str, Path]
    llama_server: Path | None
    prototype: Path | None
    logs: Path


@dataclass(frozen=True, slots=True)
class Machine:
    """What engines run on."""

    threads: int
    cpus: Sequence[int]


Command = tuple[list[str], dict[str, str]]
"""A command line and its environment."""


def engine_command(peer: str, group: tuple[str, str], paths: Paths, machine: Machine) -> Command:
    """How an engine is started for a model in a format."""
    python, (model, form) = str(paths.interpreters[peer]), group
    folder = paths.models / model
    weights = str(folder / "hf") if form == "bf16" else str(folder / f"{form}.gguf")
    env = {**os.environ, "PYTHONPATH": str(HERE.parent), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    threads = ["--threads", str(machine.threads)]
    if peer == "prototype":
        env["PYTHONPATH"] = f"{HERE / 'prototype'}:{HERE.parent}"
        env["PEERS"] = str(paths.logs)  # it builds its library there
        kind = PROTOTYPE_KINDS[form]
        script = [str(paths.prototype / "engine.py")] if paths.prototype else []
        return [python, *script, "--model", str(folder / "hf"), "--name", model, "--kind", kind, *threads], env
    if peer == "llamacpp":
        return [python, "-m", "cpu_peers.engine_llamacpp", str(folder / f"{form}.gguf"), *threads], env
    if peer == "vllm":
        env.update(vllm_environment(machine))
    extra = threads if peer == "transformers" else []
    return [python, "-m", f"cpu_peers.engine_{peer}", weights, *extra], env


def vllm_environment(machine: Machine) -> dict[str, str]:
    """vLLM at its best: every core it may use, and no more cache than it needs."""
    cpus = ",".join(map(str, machine.cpus))
    return {"VLLM_CPU_OMP_THREADS_BIND": cpus, "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_NO_USAGE_STATS": "1"}


class Engine:
    """An engine in its own process group; loading starts at once, `ready` waits for it."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.facts: dict[str, Any] = {}
        self._log_path = log
        self._log: IO[bytes] = log.open("wb")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=dict(env),
            start_new_session=True,
        )  # fmt: skip

    def ready(self) -> None:
        """Wait until it is loaded, then put it aside."""
        self.facts = json.loads(self._line())
        self._signal(signal.SIGSTOP)

    def run(self, job: Mapping[str, int]) -> float:
        """Seconds of one job; the engine rests before and after."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        try:
            print(json.dumps(job), file=self._process.stdin, flush=True)
            return float(json.loads(self._line())["seconds"])
        finally:
            self._signal(signal.SIGSTOP)

    def memory(self) -> int:
        """Resident bytes now."""
        return resident_bytes(self._process.pid)

    def close(self) -> None:
        """End it, whatever state it is in."""
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait(20)
        self._log.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._log_path.read_text(errors="replace").strip().splitlines() or ["nothing"]
            raise EngineError(f"{self.name} ended; its last words: {said[-1]} (all of them: {self._log_path})")
        return line

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            print(f"{self.name} is gone", file=sys.stderr)
