"""Each benchmark is a program whose last line is JSON, so that scripts can read its figures."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import sources

PROGRAMS = sorted((sources.ROOT / "benchmarks").glob("*.py"))


def _prints(tree: ast.Module) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return sorted((c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"), key=lambda c: c.lineno)


@pytest.mark.parametrize("path", PROGRAMS, ids=sources.relative)
def test_main_ends_with_one_line_of_json(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "it says what it measures and how"
    (main,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main")
    last = _prints(ast.Module([main], []))[-1]
    assert ast.unparse(last).startswith("print(json.dumps("), f"{sources.relative(path)}:{last.lineno}"
    assert not any(keyword.arg == "indent" for keyword in ast.walk(last) if isinstance(keyword, ast.keyword))
