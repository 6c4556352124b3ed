"""The `turret` command: what it prints, how it ends, how fast it says what it can do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from turret.cli.main import main


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "turret.cli.main", *args], capture_output=True, text=True, timeout=60)


def test_overview(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in ("serve", "chat", "complete", "bench", "plan", "plugins", "version"))
    assert main([]) == 2


def test_version(capsys):
    assert main(["--version"]) == 0 == main(["version"])
    first, second = capsys.readouterr().out.splitlines()
    assert first == second and first.startswith("turret ")


def test_serve_help_lists_the_options():
    done = run("serve", "--help")
    assert done.returncode == 0
    for option in ("--max-model-len", "--no-enable-prefix-caching", "--api-key", "--plugin-config", "--config"):
        assert option in done.stdout
    assert "default: 8000" in done.stdout


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["nonsense"], 2, "there is no command 'nonsense'"),
        (["bench"], 2, "turret bench measures serve, throughput, latency, startup; got nothing"),
        (["bench", "--batch-size", "0"], 2, "must be at least 1, got 0"),
        (["bench", "serve", "--num-prompts", "0"], 2, "must be at least 1, got 0"),
        (["complete", "--url", "http://127.0.0.1:1", "--prompt", "x"], 1, "does not answer"),
        (["chat", "--url", "http://127.0.0.1:1", "--max-model-len", "9"], 2, "--max-model-len is for a model in this"),
        (["plan", "/no/such/model"], 1, "/no/such/model"),
        (["serve", "--enable-lora"], 2, "adapters are not in this version"),
        (["serve", "--port", "99999"], 2, "--port must be in [0, 65535]"),
        (["serve", "/no/such/model", "--port", "0"], 1, "/no/such/model"),
    ],
)
def test_mistakes_end_with_one_line(args, status, words):
    done = run(*args)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == status and last.startswith("turret: error: ") and words in last
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback():
    done = run("serve", "--enable-lora", "--log-level", "debug")
    assert "Traceback" in done.stderr and done.returncode == 2


def test_the_overview_loads_next_to_nothing():
    heavy = ["torch", "transformers", "fastapi", "msgspec", "zmq", "yaml", "jinja2", "tqdm", "httpx"]
    code = "import sys; from turret.cli.main import main; main(['--help'])\n"
    code += f"print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout
