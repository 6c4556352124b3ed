"""`turret plugins new`: write a package that works and passes the conformance kit as it is.

Owns the templates (text files beside this module) and the names filled into them. Knows nothing of the contracts: the
templates do.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from turret.cli.plugins_views import print_json
from turret.errors import ConfigError
from turret.plugins.kinds import kind_named

__all__ = ["TEMPLATES", "new_plugin", "write_package"]

TEMPLATES = ("attention", "platform", "quant", "model", "tool_parser", "reasoning_parser")

SUMMARIES: Mapping[str, str] = {
    "attention": "Attention backend {name} for turret",
    "platform": "Platform {name} for turret",
    "quant": "Quantization method {name} for turret",
    "model": "Model architecture {name} for turret",
    "tool_parser": "Tool-call parser {name} for turret",
    "reasoning_parser": "Reasoning parser {name} for turret",
}
USES: Mapping[str, str] = {
    "attention": "Choose it with `turret serve --attention-backend {entry}`.",
    "platform": "Choose it with `turret serve --device {entry}`.",
    "quant": "It serves checkpoints whose `quantization_config.quant_method` is `{entry}`.",
    "model": "It serves checkpoints whose config.json names the architecture `{entry}`.",
    "tool_parser": "`turret plugins explain tool_parser --explicit {entry}` shows that it is found.",
    "reasoning_parser": "`turret plugins explain reasoning_parser --explicit {entry}` shows that it is found.",
}
NEEDS_TORCH = ("attention", "platform", "quant", "model")
CLASSES: Mapping[str, str] = {
    "attention": "Backend",
    "platform": "Platform",
    "quant": "Method",
    "tool_parser": "Parser",
    "reasoning_parser": "Parser",
}


def new_plugin(args: argparse.Namespace) -> int:
    kind = {"parser": "tool_parser"}.get(args.kind, args.kind)
    root, files = write_package(kind, args.name, Path(args.output))
    if args.json:
        print_json({"directory": str(root), "distribution": root.name, "files": files})
        return 0
    print("\n".join(f"wrote {root / file}" for file in files))
    print(f"next: pip install -e {root} && turret plugins test {root.name}")
    return 0


def write_package(kind: str, name: str, parent: Path) -> tuple[Path, list[str]]:
    """Write `parent/turret-<kind>-<name>`; returns it and its files. Never overwrites: raises ConfigError."""
    if kind not in TEMPLATES:
        raise ConfigError(f"there is no template for {kind!r}; there are {', '.join(TEMPLATES)}")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(f"NAME {name!r} must be a lower-case word (letters, digits, '_'), such as acme")
    words = _words(kind, name)
    root = parent / words["DIST"]
    if root.exists():
        raise ConfigError(f"{root} exists already; choose another NAME or --output")
    package = f"src/{words['PACKAGE']}"
    places = {
        "common/pyproject.toml.txt": "pyproject.toml",
        "common/README.md.txt": "README.md",
        "common/init.py.txt": f"{package}/__init__.py",
        "common/test_conformance.py.txt": "tests/test_conformance.py",
        f"{kind}/turret_plugin.toml.txt": f"{package}/turret_plugin.toml",
        f"{kind}/plugin.py.txt": f"{package}/plugin.py",
        f"{kind}/conformance.py.txt": f"{package}/conformance.py",
    }
    templates = resources.files("turret.cli") / "plugin_templates"
    written = []
    for template, place in places.items():
        source = templates.joinpath(*template.split("/"))
        if source.is_file():
            path = root / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_filled(source.read_text(encoding="utf-8"), words), encoding="utf-8")
            written.append(place)
    return root, written


def _words(kind: str, name: str) -> dict[str, str]:
    """What stands for each @WORD@ in the templates."""
    family = "parser" if kind.endswith("_parser") else kind
    camel = "".join(part.capitalize() for part in name.split("_"))
    entry = f"{camel}ForCausalLM" if kind == "model" else name
    depends = ['  "turret",', '  "torch>=2.11",'] if kind in NEEDS_TORCH else ['  "turret",']
    return {
        "KIND": kind,
        "ENTRY": entry,
        "DIST": f"turret-{family}-{name.replace('_', '-')}",
        "PACKAGE": f"turret_{family}_{name}",
        "CLASS": "ARCHITECTURE" if kind == "model" else f"{camel}{CLASSES[kind]}",
        "GROUP": kind_named(kind).group,
        "SUMMARY": SUMMARIES[kind].format(name=name),
        "USE": USES[kind].format(entry=entry),
        "DEPENDS": "\n" + "\n".join(depends) + "\n",
    }


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text
