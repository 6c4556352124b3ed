"""`turret chat`: a conversation in the terminal.

Owns: the turns and the commands between them. Knows nothing of who answers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

from turret.cli.asking import asking_parser, partner_of, wishes_of
from turret.cli.partner import Message, Partner, Wishes
from turret.errors import RequestError

__all__ = ["run"]

COMMANDS = "/new begins a new conversation, /quit (or Ctrl-D) ends; Ctrl-C stops an answer"


def run(argv: Sequence[str]) -> int:
    """Talk until the end of input; with --message, one turn."""
    parser = asking_parser("chat", f"Talk to a model. {COMMANDS}.")
    parser.add_argument("--system", help="a system message to begin with")
    parser.add_argument("--message", help="say this, print the answer, and end")
    args, rest = parser.parse_known_args(list(argv))
    with partner_of(args, rest) as partner:
        conversation = _Conversation(partner, wishes_of(args), args.system)
        if args.message is not None:
            conversation.say(args.message)
        else:
            _converse(conversation, partner.model)
    return 0


class _Conversation:
    """What was said so far."""

    def __init__(self, partner: Partner, wishes: Wishes, system: str | None) -> None:
        self._partner = partner
        self._wishes = wishes
        self._opening: list[Message] = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._opening)

    def begin_anew(self) -> None:
        """Forget all but the system message."""
        self._messages = list(self._opening)

    def say(self, text: str) -> None:
        """One turn: print the answer as it comes, and keep both; what was interrupted is kept as far as it came. A turn
        that fails is forgotten."""
        asked: list[Message] = [*self._messages, {"role": "user", "content": text}]
        pieces: list[str] = []
        with suppress(KeyboardInterrupt):
            for piece in self._partner.chat(asked, self._wishes):
                pieces.append(piece)
                print(piece, end="", flush=True)
        print()
        self._messages = [*asked, {"role": "assistant", "content": "".join(pieces)}]


def _converse(conversation: _Conversation, model: str) -> None:
    if sys.stdin.isatty():
        print(f"{model}: {COMMANDS}")
    for line in _lines():
        if line == "/quit":
            return
        if line == "/new":
            conversation.begin_anew()
            continue
        try:
            conversation.say(line)
        except RequestError as error:
            print(f"turret: {error}", file=sys.stderr)


def _lines() -> Iterator[str]:
    """What a person types, line by line; empty lines say nothing."""
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            return
        if line:
            yield line
