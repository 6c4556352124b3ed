"""`make serve` as the README says it: started, asked, and stopped with Ctrl-C.

`make test` is what runs this file.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.model


class Make:
    """A running `make`, in a process group of its own as a shell gives one to each command."""

    def __init__(self, *words: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            ["make", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in self.process.stdout)

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def ready(self) -> bool:
        assert self.process.poll() is None, f"make ended with {self.process.returncode}:\n{self.said}"
        return re.search(r"ready after ", self.said) is not None

    def interrupt(self) -> None:
        """What Ctrl-C does: the terminal signals everyone in the group."""
        os.killpg(self.process.pid, signal.SIGINT)


@contextlib.contextmanager
def making(*words: str) -> Iterator[Make]:
    started = Make(*words)
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.process.pid, signal.SIGKILL)
        started.process.wait()


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_make_serve(port, until):
    # The environment is the one that runs this test, whose set-up is done: `-o` keeps make from doing it again.
    venv = os.path.relpath(sys.prefix, ROOT)
    words = [f"VENV={venv}", "-o", f"{venv}/.setup.stamp", f"PORT={port}"]
    with making(*words, "ARGS=--host 127.0.0.1 --kv-cache-memory-bytes 256M", "serve") as make:
        until(make.ready, 180, lambda: make.said)
        with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
            question = {"role": "user", "content": "Why is the sky blue?"}
            stream = client.chat.completions.create(
                model="demo", messages=[question], temperature=0, max_tokens=24, stream=True)
            chunks = [chunk.choices[0] for chunk in stream if chunk.choices]
        assert len(chunks) > 3 and chunks[-1].finish_reason in ("stop", "length")
        text = "".join(chunk.delta.content or "" for chunk in chunks)
        assert re.search(r"\b(sky|blue|light)\b", text), text

        make.interrupt()
        make.process.wait(60)
        make.reader.join(10)  # the pipe closes when the last process of the group is gone
        assert not make.reader.is_alive(), "someone outlived make"
        assert "Traceback" not in make.said
        with pytest.raises(ProcessLookupError):
            os.killpg(make.process.pid, 0)
