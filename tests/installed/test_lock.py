"""`turret plugins lock`, then `--plugins-lock`: exactly what was locked, or no start."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving import serve
from venvs import Venv

KV = ("--max-model-len", "128", "--kv-cache-memory-bytes", "33554432")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Venv, Path]:
    """An environment of its own: these tests change what is installed."""
    root = tmp_path_factory.mktemp("locked")
    venv = Venv.make(root / "venv")
    venv.install(Path(venv.json("plugins", "new", "attention", "locked", "--output", str(root))["directory"]))
    path = root / "plugins.lock"
    assert venv.turret("plugins", "lock", "--output", str(path)).returncode == 0
    return venv, path


@pytest.mark.model
def test_serves_what_was_locked(locked: tuple[Venv, Path], tmp_path: Path, port: int) -> None:
    venv, path = locked
    argv = ["demo", "--attention-backend", "locked", "--plugins-lock", str(path)]
    with serve(venv, tmp_path / "log", port, *argv) as served:
        assert "Paris" in served.complete(model="demo", prompt="The capital of France is")["choices"][0]["text"]


@pytest.mark.model
def test_changed_file_stops_the_start(locked: tuple[Venv, Path]) -> None:
    venv, path = locked
    plugin = venv.site_packages / "turret_attention_locked" / "plugin.py"
    before = plugin.read_text()
    plugin.write_text(before + "\n# changed after the lock\n")
    done = venv.turret("serve", "demo", "--plugins-lock", str(path), *KV)
    plugin.write_text(before)
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert done.returncode == 1
    assert "attention:locked (turret-attention-locked 0.1.0): its files differ" in line and "failed at lock" in line
