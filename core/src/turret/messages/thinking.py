"""A budget for reasoning, on its way from the front, which knows the marks, to the worker, which counts.

Owns: `ThinkingBudget`. Knows nothing of text.
"""

from __future__ import annotations

import msgspec

__all__ = ["ThinkingBudget"]


class ThinkingBudget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """At most `tokens` tokens of reasoning; then the tokens of `force` are generated, which end it.

    Reasoning runs from the start if it has `begun`, and else from the token after one of `starts`, until one of `ends`
    (sequences of token ids). Where it may come back (`again`), all of it counts together; else `starts` are looked for
    in the first tokens only.
    """

    tokens: int
    force: list[int]
    ends: list[list[int]]
    starts: list[list[int]] = []
    begun: bool = False
    again: bool = False
