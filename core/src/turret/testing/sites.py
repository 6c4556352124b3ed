"""Sites: tiny real distributions in a directory, as an installer would leave them.

Owns the making of a dist-info with entry points, a package and a manifest, for tests of discovery and selection. Knows
nothing of what the plugins do.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["GOOD", "Site", "manifest_text", "on_path"]

GOOD = """
    from turret.plugins import Verdict

    class Backend:
        api = "1.0"
        name = "{leaf}"
        def supports(self, query):
            return Verdict.yes()
"""


def manifest_text(kind: str = "attention", name: str = "acme", api: str = ">=1.0,<2", extra: str = "") -> str:
    """A manifest that provides one thing; `extra` goes into its table."""
    head = f'schema = 1\n[[provides]]\nkind = "{kind}"\nname = "{name}"\napi = "{api}"\n'
    return head + textwrap.dedent(extra)


class Site:
    """A directory (to be put on sys.path) that holds installed distributions."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(
        self,
        distribution: str,
        entries: Mapping[str, str],
        code: str | Mapping[str, str] = "",
        *,
        manifest: str | None = None,
        version: str = "0.1.0",
    ) -> str:
        """Install; `entries` maps `group/name` to a value, `code` is the package's `plugin.py`. Returns the package."""
        package = distribution.replace("-", "_")
        root = self.path / package
        root.mkdir()
        (root / "__init__.py").write_text("")
        files = {"plugin.py": code} if isinstance(code, str) else code
        for name, text in files.items():
            (root / name).write_text(textwrap.dedent(text))
        groups: dict[str, dict[str, str]] = {}
        for place, value in entries.items():
            group, _, name = place.partition("/")
            groups.setdefault(group, {})[name] = value
        if manifest is not None:
            (root / "turret_plugin.toml").write_text(manifest)
            groups["turret.manifest"] = {distribution: f"{package}:turret_plugin.toml"}
        self._write_metadata((distribution, version), groups)
        return package

    def install_project(self, root: Path) -> str:
        """Install a source tree with `pyproject.toml` and `src/`, as a wheel of it would; returns its distribution."""
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for package in (root / "src").iterdir():
            shutil.copytree(package, self.path / package.name)
        self._write_metadata((project["name"], project["version"]), project["entry-points"])
        return str(project["name"])

    def _write_metadata(self, identity: tuple[str, str], groups: Mapping[str, Mapping[str, str]]) -> None:
        distribution, version = identity
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        sections = []
        for group, entries in groups.items():
            lines = [f"{name} = {value}" for name, value in entries.items()]
            sections.append("\n".join([f"[{group}]", *lines]))
        (info / "entry_points.txt").write_text("\n".join(sections) + "\n")
        importlib.invalidate_caches()

    def attention(
        self, leaf: str = "acme", code: str = GOOD, *, extra: str = "", api: str = ">=1.0,<2", name: str = ""
    ) -> str:
        """Install `turret-attention-<leaf>` with a manifest."""
        name = name or leaf
        distribution = f"turret-attention-{leaf}"
        package = distribution.replace("-", "_")
        return self.install(
            distribution,
            {f"turret.attention/{name}": f"{package}.plugin:Backend"},
            textwrap.dedent(code).replace("{leaf}", leaf),
            manifest=manifest_text("attention", name, api, extra),
        )


@contextmanager
def on_path(path: Path) -> Iterator[Site]:
    """A new site at `path`, first on sys.path; what was imported from it is forgotten afterwards."""
    path.mkdir()
    sys.path.insert(0, str(path))
    importlib.invalidate_caches()
    try:
        yield Site(path)
    finally:
        sys.path.remove(str(path))
        mine = [name for name, module in sys.modules.items() if str(path) in str(getattr(module, "__file__", ""))]
        for name in mine:
            del sys.modules[name]
