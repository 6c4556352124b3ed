"""`turret complete`: continue a text.

Owns: where the prompt comes from and how the answer appears. Knows nothing of who answers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from turret.cli.asking import asking_parser, partner_of, wishes_of
from turret.errors import ConfigError

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    """Print what follows the prompt, as it comes."""
    parser = asking_parser("complete", "Continue a text: --prompt, or standard input.")
    parser.add_argument("--prompt", help="the text; without it, standard input is read to its end")
    parser.add_argument("--echo", action="store_true", help="print the prompt, too")
    args, rest = parser.parse_known_args(list(argv))
    prompt = sys.stdin.read() if args.prompt is None else args.prompt
    if not prompt:
        raise ConfigError("the prompt is empty: give --prompt TEXT, or a text on standard input")
    with partner_of(args, rest) as partner:
        if args.echo:
            print(prompt, end="", flush=True)
        for piece in partner.complete(prompt, wishes_of(args)):
            print(piece, end="", flush=True)
    print()
    return 0
