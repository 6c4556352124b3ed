"""The examples of docs/plugins/README.md are what they say: a manifest that parses, a listener that listens."""

from __future__ import annotations

import re
from pathlib import Path

from turret.plugins import Candidate, Hooks
from turret.plugins.events import RequestFinished
from turret.plugins.kinds import KINDS
from turret.plugins.manifest import parse_manifest


def blocks(docs: Path, language: str) -> list[str]:
    text = (docs / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_manifest_example_parses_and_shows_every_key(docs: Path) -> None:
    (text,) = blocks(docs, "toml")
    (provided,) = parse_manifest(text).provides
    names = {"class" if name == "standing" else name for name in provided.__struct_fields__}
    shown = [name for name in names if re.search(rf"\b{name} = |\.{name}\]", text)]
    assert set(shown) == names


def test_listener_example_listens(docs: Path) -> None:
    (code,) = [block for block in blocks(docs, "python") if "hookimpl" in block]
    scope: dict[str, object] = {"__name__": "example"}
    exec(code, scope)
    audit = scope["Audit"]()  # type: ignore[operator]
    hooks = Hooks([(Candidate("hook", "audit", "example:Audit", "turret-hook-audit", "0.1.0"), audit)])
    hooks.notify("request_finished", RequestFinished("r", "stop", 3, 5, 0.1))
    assert hooks.active == ("hook:audit",) and audit.tokens == 5


def test_kinds_on_the_page_exist(docs: Path) -> None:
    row = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \|.*\| `(turret\.\w+)` \|", re.MULTILINE)
    rows = row.findall((docs / "README.md").read_text())
    told = {name.strip("`"): group for names, group in rows for name in names.split(", ")}
    assert told and all(KINDS[name].group == group for name, group in told.items())
