"""`turret plugins ...`: what each command says, as text and as JSON, and its exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turret.cli.main import main
from turret.testing.sites import GOOD, Site, manifest_text, on_path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Installed beside what the environment has."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    with on_path(tmp_path / "site") as made:
        yield made


class Said:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def turret(capfd: pytest.CaptureFixture[str]) -> Any:
    def run(*argv: str) -> Said:
        capfd.readouterr()
        status = main(["plugins", *argv])
        out, err = capfd.readouterr()
        return Said(status, out, err)

    return run


def test_list_reads_metadata_and_manifests_only(site: Site, turret: Any) -> None:
    package = site.attention("acme", "raise RuntimeError('imported')")
    said = turret("list")
    assert said.status == 0 and "attention:acme" in said.out and "turret-attention-acme 0.1.0" in said.out
    entries = turret("list", "--kind", "attention", "--json").json["plugins"]
    (mine,) = [entry for entry in entries if entry["name"] == "acme"]
    assert (mine["state"], mine["api"], mine["entry_point"]) == ("discovered", ">=1.0,<2", f"{package}.plugin:Backend")
    assert {entry["kind"] for entry in entries} == {"attention"} and package not in sys.modules


def test_list_shows_why_not(site: Site, turret: Any) -> None:
    site.attention("acme", api=">=7.0")
    site.install("odd", {"turret.cannons/big": "odd.plugin:A"})
    said = turret("list")
    assert "incompatible" in said.out and "attention API >=7.0" in said.out
    assert "odd registers 'big' in turret.cannons, a group turret does not know" in said.out
    blocked = turret("list", "--json", "--plugins-deny", "attention:acme").json["plugins"]
    (mine,) = [entry for entry in blocked if entry["name"] == "acme"]
    assert (mine["state"], mine["tier"]) == ("blocked", "deny")


def test_unknown_kind_and_name(site: Site, turret: Any) -> None:
    for argv in (["list", "--kind", "cannon"], ["explain", "cannon"]):
        said = turret(*argv)
        assert said.status == 1 and "there is no plugin kind 'cannon'; the kinds are platform, attention" in said.err
    said = turret("show", "nothing")
    assert said.status == 1 and "no installed plugin is called 'nothing'" in said.err


@pytest.mark.parametrize("name", ["acme", "attention:acme", "turret-attention-acme"])
def test_show_tells_the_manifest(site: Site, turret: Any, name: str) -> None:
    extra = "capabilities = { head_sizes = [64] }\nposture = { network = true }"
    package = site.attention("acme", "raise RuntimeError('imported')", extra=extra)
    (shown,) = turret("show", name, "--json").json["plugins"]
    assert shown["capabilities"] == {"head_sizes": [64]} and shown["posture"]["network"] is True
    assert shown["processes"] == ["worker"] and len(shown["files_sha256"]) == 64
    assert '"head_sizes": [64]' in turret("show", name).out and package not in sys.modules


def test_explain_gives_every_candidate_a_verdict_and_its_tier(site: Site, turret: Any) -> None:
    site.attention("acme", GOOD, extra="class = 'specialised'")
    site.attention("other", extra="requires = { modules = ['no_such_module_here'] }")
    said = turret("explain", "attention", "--json").json
    tiers = {entry["name"]: (entry["state"], entry["tier"], entry["ok"]) for entry in said["candidates"]}
    assert said["chosen"] == "attention:acme" and tiers["acme"] == ("selected", "rank", True)
    assert tiers["other"] == ("ineligible", "requirements", False)
    text = turret("explain", "attention").out
    assert "* attention:acme (turret-attention-acme 0.1.0): selected [rank]" in text
    assert "module 'no_such_module_here' is not installed" in text and "chosen: attention:acme" in text


def test_explain_under_a_preference(site: Site, turret: Any) -> None:
    site.attention("acme", GOOD, extra="class = 'reference'")
    site.attention("other", GOOD, extra="class = 'specialised'")
    assert turret("explain", "attention", "--json").json["chosen"] == "attention:other"
    said = turret("explain", "attention", "--json", "--plugins-prefer", "attention:acme").json
    assert said["chosen"] == "attention:acme"


def test_explain_of_an_explicit_choice_that_fails(site: Site, turret: Any) -> None:
    site.attention("acme", api=">=7.0")
    said = turret("explain", "attention", "--explicit", "acme")
    assert said.status == 1 and "failed at api" in said.out


def test_lock_is_a_plan_of_what_is_installed(site: Site, turret: Any, tmp_path: Path) -> None:
    package = site.attention("acme", "raise RuntimeError('imported')")
    path = tmp_path / "plugins.lock"
    assert turret("lock", "--output", str(path)).status == 0
    (entry,) = [entry for entry in json.loads(path.read_text())["entries"] if entry["name"] == "acme"]
    assert entry["version"] == "0.1.0" and len(entry["hash"]) == 64 and package not in sys.modules


def test_doctor_finds_what_is_broken_and_survives_it(site: Site, turret: Any) -> None:
    site.attention("acme", "import no_such_module_here")
    site.attention("crash", "import os\nos._exit(7)")
    site.attention("hang", "import threading\nthreading.Event().wait()")
    site.attention("noise", "print('hello')\n" + GOOD.replace("\n    ", "\n"))
    site.attention("one", name="twice")
    site.attention("two", name="twice")
    allow = [f"turret-attention-{leaf}" for leaf in ("acme", "crash", "hang", "noise", "one", "two")]
    said = turret("doctor", "--json", "--timeout", "3", "--plugins-allow", *allow)
    found = {entry["distribution"]: entry for entry in said.json["plugins"] if entry["distribution"] in allow}
    assert said.status == 1
    assert found["turret-attention-acme"]["state"] == "broken"
    assert "no_such_module_here" in found["turret-attention-acme"]["problem"]
    assert "ended with status 7" in found["turret-attention-crash"]["problem"]
    assert "not loaded within 3 s" in found["turret-attention-hang"]["problem"]
    assert found["turret-attention-noise"]["state"] == "active"
    assert any("turret-attention-one 0.1.0 and turret-attention-two 0.1.0" in line for line in said.json["conflicts"])


def test_doctor_is_content_with_a_good_plugin(site: Site, turret: Any) -> None:
    site.attention("acme", GOOD)
    said = turret("doctor", "--plugins-allow", "attention:acme")
    assert said.status == 0 and "active" in said.out


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["new", "cannon", "acme"], "there is no template for 'cannon'"),
        (["new", "attention", "Acme-1"], "must be a lower-case word"),
    ],
)
def test_new_refuses(turret: Any, argv: list[str], told: str) -> None:
    said = turret(*argv)
    assert said.status == 2 and told in said.err


def test_new_never_overwrites(turret: Any, tmp_path: Path) -> None:
    said = turret("new", "parser", "acme", "--output", str(tmp_path), "--json").json
    assert said["distribution"] == "turret-parser-acme" and "pyproject.toml" in said["files"]
    again = turret("new", "tool_parser", "acme", "--output", str(tmp_path))
    assert again.status == 2 and "exists already" in again.err


def test_new_then_test(site: Site, turret: Any, tmp_path: Path) -> None:
    root = tmp_path / turret("new", "parser", "acme", "--output", str(tmp_path), "--json").json["distribution"]
    site.install_project(root)
    output = tmp_path / "conformance.json"
    said = turret("test", "turret-parser-acme", "--output", str(output), "--json")
    assert said.status == 0, said.out + said.err
    result = json.loads(output.read_text())
    assert said.json == result and result["failed"] == 0 and result["passed"] >= 12
    assert {"static", "contract", "lifecycle", "semantic"} == {case["section"] for case in result["cases"]}


def test_test_fails_with_the_plugin(site: Site, turret: Any, tmp_path: Path) -> None:
    manifest = manifest_text("tool_parser", "bad")
    entry = {"turret.parsers/bad": "turret_parser_bad.plugin:P"}
    site.install("turret-parser-bad", entry, "class P: ...", manifest=manifest)
    output = tmp_path / "conformance.json"
    assert turret("test", "turret-parser-bad", "--output", str(output)).status == 1
    failed = [case for case in json.loads(output.read_text())["cases"] if case["outcome"] == "failed"]
    assert any(case["name"] == "open" and "which it lacks" in case["reason"] for case in failed)


def test_test_of_what_is_not_installed(turret: Any) -> None:
    said = turret("test", "no-such-distribution")
    assert said.status == 1 and "offers a plugin" in said.err
