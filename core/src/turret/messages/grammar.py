"""A compiled grammar on its way from the front, which has it compiled, to the worker, which follows it.

Owns: `GrammarProgram`. Knows nothing of what its bytes mean.
"""

from __future__ import annotations

import msgspec

__all__ = ["GrammarProgram"]


class GrammarProgram(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`compiled` is what `backend` made of a spec; equal `key`s mean the same grammar. The grammar holds from the first
    token or, with `after` (sequences of token ids), from the token after the first one that completes one of them: with
    `starts` only if the answer begins with one of those, else from the first token."""

    backend: str
    key: str
    compiled: bytes
    after: list[list[int]] = []
    starts: list[list[int]] = []
