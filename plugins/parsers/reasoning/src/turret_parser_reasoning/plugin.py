"""The parsers as turret loads them: one object for each name of the table.

Owns nothing but the contract's members. Entry points name attributes of this module; they are made when asked for.
"""

from __future__ import annotations

from turret.contracts import ParserContext, ThinkingMarks
from turret_parser_reasoning.split import Format, Session
from turret_parser_reasoning.variants import VARIANTS

__all__ = ["VariantParser"]


class VariantParser:
    """Contract `reasoning_parser`, 1.2, for one variant."""

    api = "1.2"
    kind = "reasoning_parser"

    def __init__(self, format: Format) -> None:
        self._format = format
        self.special_tokens: tuple[str, ...] = tuple(dict.fromkeys(format.marks()))

    def open(self, ctx: ParserContext) -> Session:
        """A session for one answer."""
        return Session(self._format, ctx)

    def thinking(self, ctx: ParserContext) -> ThinkingMarks | None:
        """Between which marks reasoning stands in an answer."""
        return self._format.thinking(ctx)


_PARSERS = {name.replace("-", "_"): VariantParser(format) for name, format in VARIANTS.items()}


def __getattr__(name: str) -> VariantParser:
    try:
        return _PARSERS[name]
    except KeyError:
        raise AttributeError(name) from None
