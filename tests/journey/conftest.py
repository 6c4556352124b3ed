"""`turret serve` as a person starts it: a process of its own, its lines read, its signals sent."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TURRET = str(Path(sys.executable).parent / "turret")
START_SECONDS = 180.0
"""A start takes seconds; a machine that is busy with other things may take longer."""


class ServeProcess:
    """A running `turret serve`; `lines` is what it said so far."""

    def __init__(self, args: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [TURRET, "serve", *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=cwd,
            env={**os.environ, **(env or {})},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def said(self) -> str:
        """All lines."""
        return "\n".join(self.lines)

    def wait_ready(self) -> str:
        """The base URL, once the ready line is there."""
        found: list[str] = []

        def look() -> bool:
            if self.process.poll() is not None:
                self._reader.join(5)
                raise AssertionError(f"turret serve ended with {self.process.returncode}:\n{self.said}")
            found.extend(m[1] for line in self.lines if (m := re.search(r"ready after .*: (http\S+)/v1 ", line)))
            return bool(found)

        wait_until(look, START_SECONDS, lambda: self.said)
        return found[0]

    def children(self) -> list[int]:
        """Process ids of its children: the engine."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for task in tasks for pid in task.read_text().split()]

    def wait(self, seconds: float = 120) -> int:
        """Wait until it ended by itself and all was read; the exit status."""
        status = self.process.wait(seconds)
        self._reader.join(10)
        return status

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal and wait for the end; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(60)


def wait_until(condition: Callable[[], bool], seconds: float, what: Callable[[], str] = lambda: "") -> None:
    """Poll until something outside this process has happened."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s: {what()}"
        time.sleep(0.02)


@contextlib.contextmanager
def serving(*args: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Iterator[ServeProcess]:
    """A server on a free loopback port, ended at the end whatever happened."""
    started = ServeProcess([*args, "--host", "127.0.0.1", "--port", "0"], cwd, env)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.terminate()
            try:
                started.process.wait(60)
            except subprocess.TimeoutExpired:
                started.process.kill()
                started.process.wait()


@pytest.fixture(scope="session")
def serve() -> Callable[..., contextlib.AbstractContextManager[ServeProcess]]:
    """Start servers of one's own."""
    return serving


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    """Wait for something to happen."""
    return wait_until


@pytest.fixture(scope="session")
def demo() -> Iterator[str]:
    """The URL of one demo server for all tests that leave it as it was."""
    with serving("demo", "--kv-cache-memory-bytes", "256M") as started:
        yield started.wait_ready()


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a Llama with random weights and a tokenizer of bytes, as transformers saves them."""
    # Imported here: most journeys need neither.
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("tiny-llama")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "</s>": 1, **{letter: i for i, letter in enumerate(alphabet, 2)}}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(path)
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, initializer_range=0.2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(path)
    return str(path)
