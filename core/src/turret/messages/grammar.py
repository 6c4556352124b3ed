"""A compiled grammar on its way from the front, which has it compiled, to the worker, which follows it.

Owns: `GrammarProgram`. Knows nothing of what its bytes mean.
"""

from __future__ import annotations

import msgspec

__all__ = ["GrammarProgram"]


class GrammarProgram(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`compiled` is what `backend` made of a spec; equal `key`s mean the same grammar. The grammar holds from the token
    after the first one that completes one of `after` (sequences of token ids), from the first token if there are
    none."""

    backend: str
    key: str
    compiled: bytes
    after: list[list[int]] = []
