"""Which of several engines gets a request.

Owns: the rule. Knows nothing of sockets, streams or how work is counted: it is a pure function of its arguments, so
several front ends with the same numbers choose alike.

The engine with the least work wins, except that among those that are nearly level the prompt's leading block decides:
each engine gets a score from a hash of block and engine, and the best score wins (rendezvous hashing). Equal beginnings
thus meet where their KV blocks are, and when an engine is lost only what it had moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from turret.errors import EngineDeadError
from turret.messages import Request

__all__ = ["OPEN_WORK", "choose_engine"]

OPEN_WORK = 256
"""What an open request weighs beside its prompt, in prompt tokens: it takes a place in every step while it lives."""
LEVEL_WORK = 2 * OPEN_WORK
"""Engines whose work differs by no more than this are level, as far as a prompt with a block to share goes."""


def choose_engine(work: Sequence[int | None], request: Request, block_size: int) -> int:
    """The engine for a request. `work` is what each has outstanding, in prompt tokens; None for one that is gone.

    Raises `EngineDeadError` when all are gone.
    """
    least = min((w for w in work if w is not None), default=None)
    if least is None:
        raise EngineDeadError("no engine is left")
    head = request.prompt_token_ids[:block_size]
    slack = LEVEL_WORK if len(head) == block_size else 0  # less than a block is never shared
    level = [index for index, w in enumerate(work) if w is not None and w <= least + slack]
    if len(level) == 1:
        return level[0]
    key = repr((head, request.cache_salt)).encode()
    return max(level, key=lambda index: blake2b(b"%d" % index + key, digest_size=8).digest())
