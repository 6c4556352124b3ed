"""The command group `turret plugins`: its options and which function answers each command.

Owns argv of the group. Knows nothing of how plugins are found or judged: the commands ask `turret.plugins`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["add_plugins_commands", "run"]

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "list": "turret.cli.plugins_views:list_plugins",
        "show": "turret.cli.plugins_views:show_plugin",
        "explain": "turret.cli.plugins_explain:explain_kind",
        "lock": "turret.cli.plugins_views:lock_plugins",
        "doctor": "turret.cli.plugins_doctor:doctor",
        "new": "turret.cli.plugins_new:new_plugin",
        "test": "turret.cli.plugins_test:run_conformance",
    }
)
"""Where each command is answered. Imported when it is called: `turret --help` must not pay for any of them."""


def add_plugins_commands(subparsers: Any) -> None:
    """Add the group to argparse's subparsers."""
    group = subparsers.add_parser("plugins", help="list, explain, check, lock, create and test plugins")
    commands = group.add_subparsers(dest="plugins_command", required=True, metavar="COMMAND")

    listing = _command(commands, "list", "list what is installed, importing nothing")
    listing.add_argument("--kind", metavar="KIND", help="only this kind")

    show = _command(commands, "show", "show one plugin's manifest, importing nothing")
    show.add_argument("name", metavar="NAME", help="name, kind:name or distribution")

    doctor = _command(commands, "doctor", "load every plugin in a process of its own and report what is broken")
    doctor.add_argument("--timeout", type=float, default=120.0, help="seconds each distribution may take")

    explain = _command(commands, "explain", "show every candidate of a kind and why it is or is not chosen")
    explain.add_argument("kind", metavar="KIND", help="attention, platform, model, quant, tool_parser, ..., or ops")
    explain.add_argument("--model", help="ask the candidates about this model")
    explain.add_argument("--explicit", metavar="NAME", help="as if the user had chosen NAME")

    lock = _command(commands, "lock", "write what is installed, with versions and file hashes, for --plugins-lock")
    lock.add_argument("--output", default="turret-plugins.lock", help="file to write")

    new = _command(commands, "new", "write a package that passes `turret plugins test` unedited", policy=False)
    kinds = "attention, platform, quant, model, tool_parser (or parser), reasoning_parser"
    new.add_argument("kind", metavar="KIND", help=kinds)
    new.add_argument("name", metavar="NAME", help="the plugin's name, such as acme")
    new.add_argument("--output", default=".", help="directory to write the package's directory into")

    test = _command(commands, "test", "run the conformance kit on an installed distribution", policy=False)
    test.add_argument("distribution", metavar="DIST", help="distribution, such as turret-attention-acme")
    test.add_argument("--output", default="conformance.json", help="file for the results")


def _command(commands: Any, name: str, text: str, *, policy: bool = True) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.add_argument("--json", action="store_true", help="answer with JSON")
    if policy:
        command.add_argument("--plugins-allow", nargs="+", default=[], metavar="NAME", help="only these plugins")
        command.add_argument("--plugins-deny", nargs="+", default=[], metavar="NAME", help="never these plugins")
        command.add_argument("--plugins-prefer", nargs="+", default=[], metavar="NAME", help="these first, best first")
        command.add_argument("--plugin-pin", nargs="+", default=[], metavar="PIN", help="kind:name=distribution")
        command.add_argument("--tool-parser-plugin", metavar="FILE", help="with the tool parsers of a Python file")
        command.add_argument("--reasoning-parser-plugin", metavar="FILE", help="with the reasoning parsers of one")
    return command


def run(args: argparse.Namespace) -> int:
    """Answer a parsed command; returns the exit status. Raises turret's errors for `main` to print."""
    module, _, function = COMMANDS[args.plugins_command].partition(":")
    status: int = getattr(importlib.import_module(module), function)(args)
    return status
