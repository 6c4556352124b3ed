"""Options that plugins add to `turret serve` through the hook `add_cli_options`.

Owns: finding them in argv and their part of the help page. Knows nothing of what they do: their values go to the
plugins with `config_resolved`. Where no hook plugin is installed, nothing is loaded for this.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import importlib_metadata

from turret.cli.arguments import read_options
from turret.config import Config, PluginConfig, option_table

if TYPE_CHECKING:
    from turret.plugins import Hooks

__all__ = ["HookOptions", "take_hook_options"]

GROUP = "turret.hooks"
LISTS = ("plugins-allow", "plugins-deny", "plugins-prefer", "plugin-pin", "plugin-config")
SINGLE = ("plugins-lock", "config")


@dataclass(frozen=True, slots=True)
class HookOptions:
    """The listeners, if they were loaded, and the values of the options they add."""

    hooks: Hooks | None = None
    values: dict[str, str | None] = field(default_factory=dict)


def take_hook_options(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], HookOptions]:
    """argv without the options that plugins add, and those. Prints them where argv asks for help."""
    if not importlib_metadata.entry_points(group=GROUP):
        return list(argv), HookOptions()
    hooks = _load(argv, environ)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    group = parser.add_argument_group("options that plugins add")
    taken = {option.name for option in option_table(Config)}
    added = hooks.cli_options()
    for candidate, option in added:
        if option.name in taken:
            remedy = f"deny it with --plugins-deny {candidate.label}"
            raise candidate.broken("add_cli_options", f"--{option.name} exists already", remedy).error()
        taken.add(option.name)
        text = f"{option.help} ({candidate.distribution})".replace("%", "%%")
        group.add_argument(f"--{option.name}", dest=option.name, default=option.default, metavar="TEXT", help=text)
    if added and {"-h", "--help"} & set(argv):
        print(parser.format_help())
    found, rest = parser.parse_known_args(list(argv))
    return rest, HookOptions(hooks, vars(found))


def _load(argv: Sequence[str], environ: Mapping[str, str]) -> Hooks:
    """The listeners that the user's policy lets through, wherever it is written."""
    from turret.compose.hosts import plugin_host  # only where a hook plugin is installed

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in LISTS:
        parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", dest=name, nargs="+", action="extend")
    for name in SINGLE:
        parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", dest=name)
    mine: list[str] = []
    for name, value in vars(parser.parse_known_args(list(argv))[0]).items():
        if value is not None:
            mine += [f"--{name}", *(value if isinstance(value, list) else [value])]
    known = {part.name for part in fields(PluginConfig)}
    options = {name: value for name, value in read_options(mine, environ).items() if name in known}
    return plugin_host(Config.from_options(options).plugins, frozenset({"front"})).hooks()
