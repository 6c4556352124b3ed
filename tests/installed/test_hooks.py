"""A hook plugin in a real server: every event arrives, its option works, and a listener that raises harms nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from serving import serve
from venvs import Venv

PYPROJECT = """
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "turret-hook-audit"
version = "0.1.0"

[project.entry-points."turret.hooks"]
audit = "turret_hook_audit:Audit"
faulty = "turret_hook_audit:Faulty"

[tool.hatch.build.targets.wheel]
packages = ["src/turret_hook_audit"]
"""
CODE = """
import json
from dataclasses import asdict

from turret.contracts.hooks import CliOption, hookimpl


class Audit:
    api = "1.0"

    @hookimpl
    def add_cli_options(self):
        return [CliOption("audit-log", "file to write every event to")]

    @hookimpl
    def config_resolved(self, event):
        self.path = event.extra["audit-log"]
        server = event.config["server"]
        self._write("config_resolved", {"port": server["port"], "keys": "api_key" in server})

    @hookimpl
    def model_loaded(self, event): self._write("model_loaded", asdict(event))

    @hookimpl
    def request_received(self, event): self._write("request_received", asdict(event))

    @hookimpl
    def request_first_token(self, event): self._write("request_first_token", asdict(event))

    @hookimpl
    def request_finished(self, event): self._write("request_finished", asdict(event))

    @hookimpl
    def metrics(self, event): self._write("metrics", dict(event.values))

    @hookimpl
    def shutdown(self, event): self._write("shutdown", {})

    def _write(self, name, values):
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps([name, values]) + "\\n")


class Faulty:
    api = "1.0"

    @hookimpl(tryfirst=True)
    def request_received(self, event):
        raise ValueError("boom")
"""


@pytest.fixture(scope="module")
def audited(venv: Venv, tmp_path_factory: pytest.TempPathFactory) -> Venv:
    root = tmp_path_factory.mktemp("hook")
    (root / "src" / "turret_hook_audit").mkdir(parents=True)
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "src" / "turret_hook_audit" / "__init__.py").write_text(CODE)
    venv.install(root)
    return venv


@pytest.mark.model
def test_every_event_arrives(audited: Venv, tmp_path: Path, port: int) -> None:
    events, log = tmp_path / "events", tmp_path / "log"
    argv = ["demo", "--audit-log", str(events), "--api-key", "secret"]
    with serve(audited, log, port, *argv) as served:
        for _ in range(4):
            served.complete(model="demo", prompt="The capital of France is", key="secret")
    told = [json.loads(line) for line in events.read_text().splitlines()]
    names = [name for name, _ in told if name != "metrics"]
    request = ["request_received", "request_first_token", "request_finished"]
    assert names == ["config_resolved", "model_loaded", *request * 4, "shutdown"]
    values = dict(told)
    assert values["config_resolved"] == {"port": port, "keys": False}
    assert values["model_loaded"]["weight_bytes"] > 10_000_000
    assert (values["request_finished"]["reason"], values["request_finished"]["output_tokens"]) == ("length", 6)
    text = log.read_text()
    assert "turret-hook-audit 0.1.0) failed at request_received: ValueError: boom" in text
    assert "switched off after 3 errors in a row" in text


def test_its_option_is_on_the_help_page_unless_it_is_denied(audited: Venv) -> None:
    assert "--audit-log" in audited.turret("serve", "--help").stdout
    assert "--audit-log" not in audited.turret("serve", "--help", "--plugins-deny", "turret-hook-audit").stdout
    denied = audited.run("-m", "turret.cli.main", "serve", "--help", TURRET_PLUGINS_DENY="hook:audit")
    assert "--audit-log" not in denied.stdout
