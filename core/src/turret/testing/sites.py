"""Sites: tiny real distributions in a directory, as an installer would leave them.

Owns the making of a dist-info with entry points, a package and a manifest, for tests of discovery and selection. Knows
nothing of what the plugins do.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Mapping
from pathlib import Path

__all__ = ["GOOD", "Site", "manifest_text"]

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
        lines: dict[str, list[str]] = {}
        for place, value in entries.items():
            group, _, name = place.partition("/")
            lines.setdefault(group, []).append(f"{name} = {value}")
        if manifest is not None:
            (root / "turret_plugin.toml").write_text(manifest)
            lines["turret.manifest"] = [f"{distribution} = {package}:turret_plugin.toml"]
        info = self.path / f"{package}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        text = "".join(f"[{group}]\n" + "\n".join(items) + "\n" for group, items in lines.items())
        (info / "entry_points.txt").write_text(text)
        importlib.invalidate_caches()
        return package

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
