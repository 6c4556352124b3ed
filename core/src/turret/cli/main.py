"""The entry point of the `turret` command.

Owns: the list of commands, the exit status and how errors look. Knows nothing of what a command does: its module is
imported when the command runs.

Exit status: 0 done, 1 the command failed, 2 the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["main"]


@dataclass(frozen=True, slots=True)
class _Command:
    """A command whose module offers `run(argv) -> status`."""

    name: str
    help: str
    module: str


_COMMANDS = (
    _Command("serve", "serve a model over HTTP, with the OpenAI API", "turret.cli.serve"),
    _Command("chat", "talk to a model, behind a URL or in this process", "turret.cli.chat"),
    _Command("complete", "continue a text, behind a URL or in this process", "turret.cli.complete"),
    _Command("bench", "measure a server, the engine's throughput and latency, or a start", "turret.cli.bench"),
    _Command("plan", "show what serving a model would take, without loading it", "turret.cli.plan"),
    _Command("plugins", "list, explain, check, lock, create and test plugins", "turret.cli.plugins_group"),
    _Command("version", "print the version", "turret.cli.version"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Prints one line for an error that a person can act on."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args and args[0] in ("--version", "-V"):
        args[0] = "version"
    if not args or args[0] in ("-h", "--help", "help"):
        _parser().print_help()
        return 0 if args else 2
    command = next((c for c in _COMMANDS if c.name == args[0]), None)
    if command is None:
        return _unknown(args[0])
    return _run(command, args[1:])


def _run(command: _Command, args: list[str]) -> int:
    from turret.errors import ConfigError, TurretError

    try:
        status: int = importlib.import_module(command.module).run(args)
        return status
    except KeyboardInterrupt:
        print("turret: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; nothing may be printed any more, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except TurretError as error:
        if _wants_traceback(args):
            traceback.print_exc()
        print(f"turret: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


def _wants_traceback(args: list[str]) -> bool:
    spelled = " ".join(args).replace("=", " ").replace("log_level", "log-level")
    return "--log-level debug" in spelled or os.environ.get("TURRET_LOG_LEVEL") == "debug"


def _unknown(name: str) -> int:
    known = ", ".join(c.name for c in _COMMANDS)
    print(f"turret: error: there is no command {name!r}; the commands are {known}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    """For the overview only: each command parses its own options."""
    parser = argparse.ArgumentParser(
        prog="turret", description="Serve large language models.", epilog="`turret COMMAND --help` lists its options."
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in _COMMANDS:
        commands.add_parser(command.name, help=command.help)
    return parser


if __name__ == "__main__":
    sys.exit(main())
