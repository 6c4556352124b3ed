"""Rules every source file keeps: size, docstring, `__all__`, who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import sources

MAX_LINES = 400
PUBLIC_ROOMS = ("contracts", "nn", "messages", "errors", "sampling", "parsing", "testing")


@pytest.mark.parametrize("path", [*sources.source_files(), *sources.files_of_tests()], ids=sources.relative)
def test_file_fits_one_room(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_LINES, f"{sources.relative(path)} has {lines} lines, past {MAX_LINES}: another room?"


@pytest.mark.parametrize("path", sources.source_files(), ids=sources.relative)
def test_module_says_what_it_owns(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{sources.relative(path)} has no docstring"


def _public_names(tree: ast.Module) -> list[str]:
    names = []
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            names.append(node.name)
    return names


def _exported(tree: ast.Module) -> set[str] | None:
    for node in tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            assert isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
            return set(ast.literal_eval(node.value))
    return None


@pytest.mark.parametrize("path", sources.source_files(), ids=sources.relative)
def test_all_lists_what_is_public(path: Path) -> None:
    tree = ast.parse(path.read_text())
    public, exported = _public_names(tree), _exported(tree)
    if not public:
        return
    assert exported is not None, f"{sources.relative(path)} defines {public} and has no __all__"
    missing = sorted(set(public) - exported)
    assert not missing, f"{sources.relative(path)}: {missing} look public and are not in __all__ (or start them with _)"


@pytest.mark.parametrize("path", sorted(sources.CORE.rglob("*.py")), ids=sources.relative)
def test_core_knows_no_plugin(path: Path) -> None:
    bad = [(line, name) for line, name in sources.imports(path) if name.split(".")[0].startswith("turret_")]
    assert not bad, f"{sources.relative(path)} imports plugins: {bad}"


@pytest.mark.parametrize("path", sources.source_files(), ids=sources.relative)
def test_plugins_know_only_public_rooms(path: Path) -> None:
    if sources.CORE in path.parents:
        return
    own = next(p.name for p in path.parents if p.parent.name == "src")
    for line, name in sources.imports(path):
        top, _, rest = name.partition(".")
        if top.startswith("turret_"):
            assert top == own, f"{sources.relative(path)}:{line} imports {name}, another plugin's inside"
        elif top == "turret":
            room = rest.split(".")[0]
            where = f"{sources.relative(path)}:{line}"
            assert room in PUBLIC_ROOMS, f"{where} imports {name}; plugins may use {PUBLIC_ROOMS}"


@pytest.mark.parametrize("path", sources.source_files(), ids=sources.relative)
def test_no_swallowed_exception(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            only_pass = len(node.body) == 1 and isinstance(node.body[0], ast.Pass)
            named = node.type.id if isinstance(node.type, ast.Name) else ""
            broad = node.type is None or named in ("Exception", "BaseException")
            assert not (only_pass and broad), f"{sources.relative(path)}:{node.lineno} swallows every exception"


@pytest.mark.parametrize("path", sources.source_files(), ids=sources.relative)
def test_no_global_state(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Global), f"{sources.relative(path)}:{node.lineno} uses `global`"
