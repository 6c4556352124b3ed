"""Plugins in a Python file that the user names on the command line, without a package around them.

Owns: running the file, and what in it is a plugin. The file is code that the user asked for by name; it runs as a
plugin does, under the eye that notices changes to the core, and its faults carry its path.

A file defines plugins by the contract: a public class or object with `api`, `kind`, and what the kind asks for. Its
`name`, else that of the variable, is what users write in the option that chooses it.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from turret.errors import ConfigError
from turret.plugins.candidate import Candidate
from turret.plugins.faults import one_line
from turret.plugins.import_guard import Snapshot
from turret.plugins.manifest import NAME

__all__ = ["file_candidates"]

FOREIGN = re.compile(r"^\s*(?:from|import)\s+(vllm|sglang)\b", re.MULTILINE)
VERSION = "file"


def file_candidates(path: str, kind: str, option: str) -> tuple[Candidate, ...]:
    """The plugins of `kind` that the file at `path` defines; raises `ConfigError` where it holds none or fails."""
    file = Path(path).expanduser()
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--{option} {path} cannot be read: {error}", option) from error
    if (foreign := FOREIGN.search(source)) is not None:
        raise ConfigError(
            f"--{option} {path} is written for {foreign[1]} (it imports it); turret's parsers follow a contract of "
            f"their own, which `turret plugins new {kind} NAME` shows", option,
        )  # fmt: skip
    module = _run(file, option)
    found = tuple(
        Candidate(kind, name, f"{module.__name__}:{attribute}", str(file), VERSION)
        for attribute, name in _plugins(module, kind)
    )
    if not found:
        raise ConfigError(
            f"--{option} {path} defines no {kind}: turret looks for public classes or objects with `api` and "
            f"`kind = {kind!r}`, as `turret plugins new {kind} NAME` writes one", option,
        )  # fmt: skip
    return found


def _run(file: Path, option: str) -> ModuleType:
    """The file as a module, once per process; it is found again by its name."""
    name = "turret_file_" + re.sub(r"\W", "_", str(file.resolve()))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"--{option} {file} is no Python file: its name must end in .py", option)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    before = Snapshot()
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(one_line(f"--{option} {file} failed: {type(error).__name__}: {error}"), option) from error
    finally:
        changes = before.changes(name)
        for change in changes:
            change.undo()
    if changes:
        del sys.modules[name]
        names = ", ".join(change.name for change in changes)
        raise ConfigError(f"--{option} {file} changed {names} (undone); a plugin must not", option)
    return module


def _plugins(module: ModuleType, kind: str) -> Iterator[tuple[str, str]]:
    """Attribute and name of each plugin, in the order of the file; what it imports from elsewhere is not its own."""
    seen: set[str] = set()
    for attribute, value in vars(module).items():
        owner = getattr(value, "__module__", None) or getattr(type(value), "__module__", None)
        if attribute.startswith("_") or owner != module.__name__ or getattr(value, "kind", None) != kind:
            continue
        name = getattr(value, "name", attribute)
        if not isinstance(name, str) or not NAME.fullmatch(name) or not isinstance(getattr(value, "api", None), str):
            continue
        if name not in seen:
            seen.add(name)
            yield attribute, name
