"""`turret plugins`: parses the group's options and runs the command.

Owns: nothing but the way from argv to `turret.cli.plugins`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from turret.cli import plugins

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    """Run one plugins command."""
    parser = argparse.ArgumentParser(prog="turret", allow_abbrev=False)
    plugins.add_plugins_commands(parser.add_subparsers(required=True))
    return plugins.run(parser.parse_args(["plugins", *argv]))
