"""Clients that others wrote, against `turret serve`. `make oracle` runs them, in an environment that has them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # what tests share lies beside them
TURRET_BIN = os.environ.get("TURRET_BIN", "")
"""Where turret is installed; the clients run in another environment."""
START_SECONDS = 180.0

collect_ignore_glob = [] if TURRET_BIN else ["test_*.py"]


@contextmanager
def serving(*args: str) -> Iterator[str]:
    """The base URL of a server of its own on a loopback port."""
    command = [f"{TURRET_BIN}/turret", "serve", *args, "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    assert process.stderr is not None
    threading.Thread(target=lambda: lines.extend(iter(process.stderr.readline, "")), daemon=True).start()
    try:
        yield _url(process, lines)
    finally:
        process.terminate()
        process.wait(60)


def _url(process: subprocess.Popen[str], lines: list[str]) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for line in list(lines):
            if found := re.search(r"ready after .*: (http\S+)/v1 ", line):
                return found[1]
        assert process.poll() is None, "".join(lines)
        time.sleep(0.05)
    raise AssertionError("the server did not start:\n" + "".join(lines))


@pytest.fixture(scope="session")
def demo() -> Iterator[str]:
    """The embedded model."""
    with serving("demo", "--kv-cache-memory-bytes", "256M", "--enable-tokenizer-info-endpoint") as url:
        yield url


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, list[dict[str, object]]]]:
    """A tiny random model: its server, its folder, and what transformers, which made it, thinks of some texts."""
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run([f"{TURRET_BIN}/python", str(HERE / "make_tiny.py"), str(folder)], check=True)
    expected = json.loads((folder / "expected.json").read_text())
    options = ("--dtype", "float32", "--kv-cache-memory-bytes", "64M", "--served-model-name", "tiny")
    with serving(str(folder), *options) as url:
        yield url, folder, expected


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A pretended device that says what a script has for a prompt, in the notation of the parsers chosen here."""
    folder = tmp_path_factory.mktemp("stage")
    subprocess.run([f"{TURRET_BIN}/python", str(HERE / "make_stage.py"), str(folder)], check=True)
    script = f"platform:fake.script={folder / 'script.json'}"
    options = ("--load-format", "dummy", "--device", "fake", "--plugin-config", script)
    parsers = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
    # Codex offers more tools to a model whose name it knows.
    names = ("--served-model-name", "actor", "gpt-5.5")
    with serving(str(folder), *options, *parsers, *names) as url:
        yield url


@pytest.fixture(scope="session")
def node_clients() -> Path:
    """The folder of the clients for Node, put there by `make oracle`."""
    folder = os.environ.get("TURRET_NODE_CLIENTS", "")
    if not folder:
        pytest.skip("there is no npm on this machine, so no clients for Node")
    return Path(folder)


@pytest.fixture(scope="session")
def node(node_clients: Path) -> Callable[[str, str], dict[str, Any]]:
    """Run a program of this folder against a server; what it saw."""

    def run(program: str, url: str) -> dict[str, Any]:
        command = ["node", program, url]
        done = subprocess.run(command, cwd=node_clients, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run
