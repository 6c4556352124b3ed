"""The parsers as turret loads them: one object for each name of the table.

Owns nothing but the contract's members. Entry points name attributes of this module; they are made when asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turret.contracts import ParserContext
from turret_parser_tool.grammar import Grammar, Session
from turret_parser_tool.variants import VARIANTS

__all__ = ["VariantParser"]


class VariantParser:
    """Contract `tool_parser`, 1.1, for one variant."""

    api = "1.1"
    kind = "tool_parser"

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self.special_tokens: tuple[str, ...] = tuple(dict.fromkeys(grammar.marks()))

    def open(self, ctx: ParserContext) -> Session:
        """A session for one answer."""
        return Session(self._grammar, ctx)

    def grammar(self, tools: Sequence[dict[str, Any]]) -> None:
        """No grammar of its own: a forced call is a JSON list, whatever the family."""
        return None


_PARSERS = {name.replace("-", "_"): VariantParser(grammar) for name, grammar in VARIANTS.items()}


def __getattr__(name: str) -> VariantParser:
    try:
        return _PARSERS[name]
    except KeyError:
        raise AttributeError(name) from None
