"""Every first-party plugin says in its manifest exactly what its entry points offer."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import sources

from turret.plugins.kinds import kind_named
from turret.plugins.manifest import parse_manifest


def _project(path: Path) -> dict[str, object]:
    return tomllib.loads((path / "pyproject.toml").read_text())["project"]


def _entry_points(project: dict[str, object]) -> set[tuple[str, str]]:
    groups = project.get("entry-points", {})
    assert isinstance(groups, dict)
    return {(group, name) for group, names in groups.items() if group != "turret.manifest" for name in names}


@pytest.mark.parametrize("path", [*sources.plugin_projects(), sources.ROOT / "core"], ids=sources.relative)
def test_manifest_equals_entry_points(path: Path) -> None:
    project = _project(path)
    manifests = project["entry-points"]["turret.manifest"]  # type: ignore[index]
    offered: set[tuple[str, str]] = set()
    for value in manifests.values():
        package, _, file = value.partition(":")
        text = (path / "src" / package / file).read_text()
        for item in parse_manifest(text).provides:
            offered.update((kind_named(item.kind).group, name) for name in item.all_names())
    assert offered == _entry_points(project)


@pytest.mark.parametrize("path", sources.plugin_projects(), ids=sources.relative)
def test_distribution_is_named_after_its_place(path: Path) -> None:
    kind = {"attention": "attention", "quant": "quant", "models": "model", "parsers": "parser", "platforms": "platform"}
    kind["endpoints"] = "endpoint"
    kind["structured"] = "structured"
    assert _project(path)["name"] == f"turret-{kind[path.parent.name]}-{path.name}"
    assert (path / "README.md").exists() and list(path.glob("tests/test_conformance.py"))
