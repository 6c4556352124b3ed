"""Where the sources of all distributions lie, for the architecture tests."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "core" / "src" / "turret"


def plugin_projects() -> list[Path]:
    """Folders of first-party plugins that are distributions."""
    return sorted(p.parent for p in ROOT.glob("plugins/*/*/pyproject.toml"))


def plugin_packages() -> list[Path]:
    """Top-level import packages of first-party plugins."""
    return sorted(init.parent for p in plugin_projects() for init in p.glob("src/*/__init__.py"))


def source_files() -> list[Path]:
    """Every Python file that ships and was written, not generated."""
    files = list(CORE.rglob("*.py"))
    for package in plugin_packages():
        files.extend(package.rglob("*.py"))
    return sorted(file for file in files if not file.stem.endswith(("_pb2", "_pb2_grpc")))


def files_of_tests() -> list[Path]:
    """Every Python file of tests and benchmarks."""
    folders = [ROOT / "core" / "tests", ROOT / "tests", ROOT / "benchmarks", *(p / "tests" for p in plugin_projects())]
    return sorted(file for folder in folders for file in folder.rglob("*.py"))


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, module) of every import in a file, whether at the top, in a function or for typing."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.lineno, node.module))
    return found


def relative(path: Path) -> str:
    """Path as a person names it."""
    return str(path.relative_to(ROOT))
