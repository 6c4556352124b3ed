"""Options that `turret chat` and `turret complete` share, and the partner they mean.

Owns: their argv. Knows nothing of how a partner answers.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import NoReturn

from turret.cli.arguments import read_options
from turret.cli.partner import LocalPartner, Partner, RemotePartner, Wishes
from turret.errors import ConfigError

__all__ = ["CommandParser", "asking_parser", "at_least", "partner_of", "wishes_of"]


class CommandParser(argparse.ArgumentParser):
    """Complains in one line instead of printing a page of usage."""

    def error(self, message: str) -> NoReturn:
        """Raise what `turret.cli.main` prints."""
        raise ConfigError(f"{message}; `{self.prog} --help` lists the options")


def at_least(smallest: int) -> Callable[[str], int]:
    """A type for argparse: a whole number not below `smallest`."""

    def read(text: str) -> int:
        if (value := int(text)) < smallest:
            raise argparse.ArgumentTypeError(f"must be at least {smallest}, got {value}")
        return value

    read.__name__ = "whole number"
    return read


def asking_parser(command: str, description: str) -> CommandParser:
    """A parser that knows where to ask and how to sample; the words it leaves are options of `turret serve`."""
    parser = CommandParser(
        prog=f"turret {command}", description=description, allow_abbrev=False,
        usage=f"turret {command} [MODEL] [OPTIONS] [options of turret serve]",
        epilog="Without --url a model is loaded into this process, by MODEL and further options of turret serve.",
    )  # fmt: skip
    parser.add_argument("--url", help="ask this server instead, such as http://localhost:8000")
    parser.add_argument("--api-key", help="its key (default: TURRET_API_KEY, then OPENAI_API_KEY)")
    parser.add_argument("--max-tokens", type=at_least(1), help="most tokens of an answer")
    parser.add_argument("--temperature", type=float, help="0 is greedy")
    parser.add_argument("--top-p", type=float, help="share of probability to sample from")
    parser.add_argument("--seed", type=int, help="same seed, same answer")
    return parser


def wishes_of(args: argparse.Namespace) -> Wishes:
    """The sampling options that were named."""
    return Wishes(args.max_tokens, args.temperature, args.top_p, args.seed)


def partner_of(args: argparse.Namespace, rest: Sequence[str]) -> Partner:
    """A server where --url names one, else the model that `rest` means, in this process."""
    if args.url is None:
        return LocalPartner(read_options(rest, os.environ))
    options = read_options(rest, {})
    if strange := sorted(set(options) - {"model"}):
        name = strange[0].replace("_", "-")
        raise ConfigError(f"--{name} is for a model in this process, but --url asks a server that has one", name)
    key = args.api_key or os.environ.get("TURRET_API_KEY") or os.environ.get("OPENAI_API_KEY")
    return RemotePartner(args.url, key, options.get("model"))
