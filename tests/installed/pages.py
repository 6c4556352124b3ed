"""Plugins out of documentation pages: the files that a page shows, written as it shows them."""

from __future__ import annotations

import re
from pathlib import Path

FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_page(page: Path, root: Path) -> Path:
    """Write every file block of a page under `root`. The README that pyproject.toml names is the page's first line."""
    text = page.read_text(encoding="utf-8")
    found = FILE.findall(text)
    assert any(name == "pyproject.toml" for name, _ in found), f"{page.name} shows no pyproject.toml"
    for name, content in found:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    (root / "README.md").write_text(text.partition("\n")[0] + "\n", encoding="utf-8")
    return root
