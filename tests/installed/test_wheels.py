"""What each distribution puts into its wheel and its sdist: all that it needs on another machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = [ROOT / "core", *sorted(p.parent for p in ROOT.glob("plugins/*/*/pyproject.toml"))]
SKIPPED = ("__pycache__", ".mypy_cache", "*.so", "*.new")
# Packaging is what these tests are about; compiling takes a minute and is what `make setup` does.
COMPILER = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo compiled > "$2"
"""
BUILD = "import sys; from hatchling import build; print(getattr(build, 'build_' + sys.argv[1])(sys.argv[2]))"


def _built(project: Path, what: str, out: Path) -> Path:
    """Run the build backend as an installer would, on a copy: what people run from the checkout stays as it is."""
    copy = out / "copy"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns(*SKIPPED))
    compiler = out / "c++"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    command = [sys.executable, "-c", BUILD, what, str(out)]
    env = {**os.environ, "CXX": str(compiler)}
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.strip().splitlines()[-1]


def _sources(folder: Path, above: Path) -> set[str]:
    """Files that are no products, as paths below `above`."""
    files = (p.relative_to(above) for p in folder.rglob("*") if p.is_file())
    return {str(p) for p in files if not any(part.match(s) for part in (p, *p.parents) for s in SKIPPED)}


def _named(project: Path) -> str:
    return str(project.relative_to(ROOT))


@pytest.mark.parametrize("project", PROJECTS, ids=_named)
def test_wheel_holds_every_file_of_the_package(project: Path, tmp_path: Path) -> None:
    (package,) = (init.parent for init in project.glob("src/*/__init__.py"))
    wheel = _built(project, "wheel", tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (message_from_bytes(archive.read(n)) for n in names if n.endswith(".dist-info/METADATA"))
        (entries,) = (archive.read(n).decode() for n in names if n.endswith(".dist-info/entry_points.txt"))
    assert _sources(package, package.parent) <= names
    if (project / "native").exists():
        assert [n for n in names if n.endswith(".so")] and "none-any" not in wheel.name
    assert {f"{package.name}/py.typed", f"{package.name}/turret_plugin.toml"} <= names
    assert not [n for n in names if n.startswith(("tests/", "native/")) or "__pycache__" in n]
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert (metadata["Name"], metadata["Version"]) == (declared["name"], declared["version"])
    assert metadata.get_payload(), "the README is the long description"
    assert "[turret.manifest]" in entries


@pytest.mark.parametrize("project", PROJECTS, ids=_named)
def test_sdist_holds_every_source(project: Path, tmp_path: Path) -> None:
    """Enough to build the wheel anywhere, native sources included."""
    if (project / "hatch_build.py").exists():
        needed = {"hatch_build.py", *(str(p.relative_to(project)) for p in (project / "native").iterdir())}
    else:
        needed = {"pyproject.toml"}
    sdist = _built(project, "sdist", tmp_path)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert needed | _sources(project / "src", project) | {"README.md"} <= names
