"""Values that the block manager takes and gives.

Owns: the shape of a pool as the manager needs it (`turret.messages.KVCacheConfig` has it), prefix hits and counters.
Knows nothing of how blocks are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["GroupShape", "PoolShape", "PrefixHit", "PrefixStats"]


class GroupShape(Protocol):
    """What one KV group needs to keep: everything (`window` None), or the last `window` tokens."""

    @property
    def window(self) -> int | None: ...


class PoolShape(Protocol):
    """One pool of `num_blocks` ids (0 is the null block) of `block_size` tokens, shared by `groups`."""

    @property
    def num_blocks(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def groups(self) -> Sequence[GroupShape]: ...
    @property
    def enable_prefix_caching(self) -> bool: ...
    @property
    def hash_algo(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """The longest prefix of a request that lies in the cache for all groups at once.

    `num_tokens` is a multiple of the block size and less than the request's length. `block_ids` is one list per group,
    each `num_tokens // block_size` long, 0 where a sliding group needs no page. A hit holds nothing: it is good until
    the next call that changes the pool.
    """

    num_tokens: int
    block_ids: list[list[int]]


@dataclass(slots=True)
class PrefixStats:
    """Tokens looked up in the prefix index and tokens found, since the start."""

    queries: int = 0
    hits: int = 0
