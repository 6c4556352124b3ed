"""The frozen plan: children load exactly what the parent chose, or stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from turret.errors import ConfigError, PluginError
from turret.plugins import Plan, PluginHost, Policy, parse_settings, read_plan, write_plan
from turret.plugins.metadata import scan_distributions
from turret.testing.sites import GOOD, Site

SCHEMA = """
[provides.options]
properties = { level = { type = "integer", default = 3 } }
"""
CODE = """
    from turret.plugins import Verdict
    class Backend:
        def __init__(self, options): self.options = options
        def supports(self, query): return Verdict.yes()
"""
CHILD = """
import sys
from turret.plugins import Plan, PluginHost
from turret.errors import PluginError
try:
    host = PluginHost.from_plan(Plan.from_json(sys.stdin.buffer.read()))
except PluginError as exc:
    print(exc, file=sys.stderr)
    sys.exit(9)
for item in host.planned("attention"):
    print(item.identity, dict(host.load(item).options))
print(*sorted(name for name in sys.modules if name.startswith("turret_attention")))
"""


@pytest.fixture
def parent(site: Site) -> PluginHost:
    site.attention("acme", CODE, extra=SCHEMA)
    site.attention("other", GOOD)
    scan = scan_distributions(["turret-attention-acme", "turret-attention-other"])
    host = PluginHost.discover(scan=scan, given=parse_settings(["attention:acme.level=5"]))
    host.select("attention", "q", explicit="acme")
    return host


def in_child(site: Site, plan: Plan) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(site.path)}
    return subprocess.run([sys.executable, "-c", CHILD], input=plan.to_json(), capture_output=True, env=environment)


def test_child_loads_exactly_the_plan(site: Site, parent: PluginHost) -> None:
    done = in_child(site, parent.freeze())
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == [
        "attention:acme (turret-attention-acme 0.1.0) {'level': 5}",
        "turret_attention_acme turret_attention_acme.plugin",
    ]


@pytest.mark.parametrize("change", ["files", "version", "gone"])
def test_child_stops_on_a_mismatch(site: Site, parent: PluginHost, change: str) -> None:
    plan = parent.freeze()
    info = site.path / "turret_attention_acme-0.1.0.dist-info"
    if change == "files":
        (site.path / "turret_attention_acme" / "plugin.py").write_text("print('other code')\n")
        told = "its files differ"
    elif change == "version":
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: turret-attention-acme\nVersion: 0.2.0\n")
        told = "version 0.2.0 is installed here"
    else:
        (info / "entry_points.txt").unlink()
        told = "it is not installed here"
    done = in_child(site, plan)
    line = done.stderr.decode().strip()
    assert done.returncode == 9 and "\n" not in line and done.stdout == b""
    assert "attention:acme (turret-attention-acme 0.1.0)" in line and told in line
    assert "failed at plan" in line and "remedy: install the same distributions" in line


def test_plan_from_another_turret(site: Site, parent: PluginHost) -> None:
    data = json.loads(parent.freeze().to_json()) | {"turret": "0.0.1"}
    with pytest.raises(PluginError, match=r"the plan was made by 0\.0\.1"):
        PluginHost.from_plan(Plan.from_json(json.dumps(data)))


def test_plan_survives_json(parent: PluginHost) -> None:
    plan = parent.freeze()
    assert Plan.from_json(plan.to_json()) == plan
    (entry,) = plan.entries
    assert (entry.label, entry.version, entry.options) == ("attention:acme", "0.1.0", {"level": 5})
    assert len(entry.hash) == 64


def test_planned_host_selects_only_from_the_plan(site: Site, parent: PluginHost) -> None:
    host = PluginHost.from_plan(parent.freeze())
    assert host.select("attention", "q").require().name == "acme"
    with pytest.raises(PluginError, match="attention:other"):
        host.select("attention", "q", explicit="other")


@pytest.mark.parametrize(
    "text", ["{", '{"turret": "1", "entries": [{}]}', '{"turret": "1", "entries": [], "schema": 7}']
)
def test_unreadable_plan(text: str) -> None:
    with pytest.raises(PluginError, match="plan"):
        Plan.from_json(text)


def test_lock_imports_nothing_and_is_enforced(site: Site, tmp_path: Path) -> None:
    site.attention("acme", "raise RuntimeError('imported')")
    site.attention("denied")
    names = ["turret-attention-acme", "turret-attention-denied"]
    host = PluginHost.discover(Policy(deny=("denied",)), scan=scan_distributions(names))
    path = tmp_path / "plugins.lock"
    write_plan(host.lock(), path)
    locked = PluginHost.discover(scan=scan_distributions(names), lock=read_plan(path))
    assert [item.name for item in locked.registry.candidates] == ["acme"], "what is not locked does not exist"
    (site.path / "turret_attention_acme" / "extra.py").write_text("")
    with pytest.raises(PluginError, match=r"differ from the lock, failed at lock.*its files differ") as caught:
        PluginHost.discover(scan=scan_distributions(names), lock=read_plan(path))
    assert caught.value.stage == "lock"


def test_missing_lockfile(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the plugin lockfile"):
        read_plan(tmp_path / "none.lock")
