"""Coding agents' command lines: each is asked to write a file, calls a tool of its own, sees the result and ends."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

PI_APIS = {"openai-completions": "/v1", "openai-responses": "/v1", "anthropic-messages": ""}
CODEX = """
model = "actor"
model_provider = "turret"

[model_providers.turret]
name = "turret"
base_url = "{url}/v1"
wire_api = "responses"

[analytics]
enabled = false
"""


class Place:
    """A home and an empty folder to work in; nothing of this machine's user is seen there."""

    def __init__(self, path: Path, clients: Path) -> None:
        self.home, self.work, self._clients = path / "home", path / "work", clients
        self.home.mkdir()
        self.work.mkdir()

    def write(self, name: str, text: str) -> None:
        """A file of the home."""
        (self.home / name).parent.mkdir(parents=True, exist_ok=True)
        (self.home / name).write_text(text)

    def run(self, program: str, *args: str, **env: str) -> str:
        """Run a client to its end; what it said."""
        command = self._clients / "node_modules" / ".bin" / program
        if not command.exists():
            pytest.skip(f"npm did not put {program} here: its package is optional and asks for another Node or system")
        done = subprocess.run(
            [str(command), *args], cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), **env}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def place(tmp_path, node_clients):
    return Place(tmp_path, node_clients)


@pytest.mark.parametrize("api", PI_APIS)
def test_pi(scripted, place, api):
    model = {"id": "actor", "reasoning": True}
    provider = {"baseUrl": scripted + PI_APIS[api], "api": api, "apiKey": "none", "models": [model]}
    place.write(".pi/agent/models.json", json.dumps({"providers": {"turret": provider}}))
    options = ("-p", "--no-session", "--provider", "turret", "--model", "actor")
    said = place.run("pi", *options, "PI-TASK: write the file", PI_OFFLINE="1")
    assert "The file is written." in said and (place.work / "made.txt").read_text() == "made by PI\n"


def test_codex(scripted, place):
    place.write(".codex/config.toml", CODEX.format(url=scripted))
    options = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    said = place.run("codex", "exec", *options, "CODEX-TASK: write the file")
    assert "The file is written." in said and (place.work / "made.txt").read_text() == "made by CODEX\n"


def test_codex_gives_a_patch_as_text(scripted, place):
    """A custom tool: what the model says in a function's argument is the input of it."""
    place.write(".codex/config.toml", CODEX.format(url=scripted))
    options = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-5.5")
    said = place.run("codex", "exec", *options, "PATCH-TASK: write the file")
    assert "The file is written." in said and (place.work / "made.txt").read_text() == 'made by "CODEX"\n'


def test_opencode(scripted, place):
    options = {"baseURL": f"{scripted}/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"actor": {}}}
    config = {"provider": {"turret": provider}, "permission": {"*": "allow"}, "autoupdate": False, "share": "disabled"}
    place.write(".config/opencode/opencode.json", json.dumps(config))
    said = place.run("opencode", "run", "-m", "turret/actor", "OPENCODE-TASK: write the file",
                     OPENCODE_DISABLE_MODELS_FETCH="1")  # fmt: skip
    assert "The file is written." in said and (place.work / "made.txt").read_text() == "made by OPENCODE\n"


def test_claude_code(scripted, place):
    said = place.run(
        "claude", "-p", "--dangerously-skip-permissions", "CLAUDE-TASK: write the file", ANTHROPIC_BASE_URL=scripted,
        ANTHROPIC_API_KEY="none", ANTHROPIC_MODEL="actor", ANTHROPIC_SMALL_FAST_MODEL="actor", DISABLE_AUTOUPDATER="1",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", IS_SANDBOX="1",
    )  # fmt: skip
    assert "The file is written." in said and (place.work / "made.txt").read_text() == "made by CLAUDE\n"
