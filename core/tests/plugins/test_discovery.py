"""Discovery: what is found in metadata and manifests, without importing any plugin."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from turret.plugins import PluginHost, Registry, State, scan_installed
from turret.plugins.manifest import parse_manifest
from turret.plugins.metadata import scan_distributions
from turret.testing.sites import Site, manifest_text


def test_manifest_is_read_without_importing_the_plugin(site: Site) -> None:
    package = site.attention("acme", "raise RuntimeError('imported')", extra="capabilities = { head_sizes = [64] }")
    (found,) = Registry.build(scan_installed()).find("attention", "acme")
    assert found.identity == "attention:acme (turret-attention-acme 0.1.0)"
    assert found.provided is not None and found.provided.capabilities == {"head_sizes": [64]}
    assert package not in sys.modules


def test_plugin_without_manifest_is_listed(site: Site) -> None:
    site.install("plain", {"turret.attention/plain": "plain.plugin:Backend"})
    (found,) = Registry.build(scan_installed()).find("attention", "plain")
    assert found.provided is None and found.fault is None


def test_parser_group_without_manifest_may_be_either_kind(site: Site) -> None:
    code = "class P:\n    api = '1.0'\n    kind = 'reasoning_parser'\n    def open(self, ctx): ...\n"
    site.install("plain", {"turret.parsers/plain": "plain.plugin:P"}, code)
    host = PluginHost.discover(scan=scan_distributions(["plain"]))
    assert host.select("tool_parser", key="plain").chosen is None
    assert host.select("reasoning_parser", key="plain").chosen is not None


def test_scan_takes_the_first_on_the_path(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = tmp_path / "second"
    second.mkdir()
    Site(second).install("plain", {"turret.attention/plain": "plain.plugin:B"}, version="9.9")
    site.install("plain", {"turret.attention/plain": "plain.plugin:A"}, version="1.0")
    monkeypatch.setattr(sys, "path", [*sys.path, str(second)])
    found = [entry.version for entry in scan_installed().entries if entry.distribution == "plain"]
    assert found == ["1.0"]


def test_entry_point_that_the_manifest_does_not_tell(site: Site) -> None:
    entries = {"turret.attention/acme": "two.plugin:A", "turret.attention/silent": "two.plugin:B"}
    site.install("two", entries, manifest=manifest_text())
    registry = Registry.build(scan_installed())
    assert registry.find("attention", "acme")[0].fault is None
    fault = registry.find("attention", "silent")[0].fault
    assert fault is not None and fault.stage == "manifest" and "is not in the manifest" in fault.line()


def test_manifest_that_provides_what_no_entry_point_does(site: Site) -> None:
    site.install("two", {"turret.attention/acme": "two.plugin:A"}, manifest=manifest_text(name="ghost"))
    fault = Registry.build(scan_installed()).find("attention", "ghost")[0].fault
    assert fault is not None and "no entry point in turret.attention does" in fault.line()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("schema = 2", "schema is 2"),
        ("schema = 1\nprovides = 3", "provides"),
        (manifest_text(kind="cannon"), "unknown kind 'cannon'"),
        (manifest_text(api="whatever"), "no version range"),
        (manifest_text(api=""), "version range"),
        (manifest_text(name="a b"), "letters"),
        (manifest_text(extra="colour = 'red'"), "colour"),
        (manifest_text(extra="processes = ['kitchen']"), "kitchen"),
        (manifest_text(extra="requires = { modules = ['a.b'] }"), "top-level"),
        (manifest_text(extra="requires = { hardware = ['CUDA!'] }"), "device::feature"),
        (manifest_text(extra="names = ['x']"), "either name or names"),
        (manifest_text(extra="class = 'best'"), "best"),
        (manifest_text() + manifest_text().removeprefix("schema = 1\n"), "more than once"),
        ("not toml", "line 1"),
    ],
)
def test_faulty_manifest_is_a_broken_candidate(site: Site, text: str, told: str) -> None:
    package = site.install("faulty", {"turret.attention/acme": "faulty.plugin:A"}, manifest=text)
    host = PluginHost.discover(scan=scan_distributions(["faulty"]))
    (found,) = host.registry.find("attention", "acme")
    assert found.fault is not None and told in found.fault.line() and "faulty 0.1.0" in found.fault.line()
    assert host.state(found) is State.BROKEN and package not in sys.modules


def test_names_share_one_table() -> None:
    text = 'schema = 1\n[[provides]]\nkind = "model"\nnames = ["A", "B"]\napi = ">=1.0,<2"\n'
    manifest = parse_manifest(text)
    assert manifest.find("model", "B") is manifest.find("model", "A") is not None
    assert manifest.find("model", "C") is None


def test_unknown_group_is_kept_as_a_stray(site: Site) -> None:
    site.install("odd", {"turret.cannons/big": "odd.plugin:A"})
    assert [entry.name for entry in Registry.build(scan_installed()).strays] == ["big"]
