"""Shapes of the KV cache that scheduler, block manager and workers agree on.

Owns: `KVGroup` and `KVCacheConfig`. Knows nothing of tensors.

One pool of `num_blocks` block ids serves all groups. A worker holds `slots` = max layers per group page tensors; the
i-th layer of each group lives in the i-th tensor, so a block id belongs to one group at a time and every page has the
same size in bytes.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["KVCacheConfig", "KVGroup", "KVGroupKind"]


class KVGroupKind(StrEnum):
    """What a layer of the group needs to keep."""

    FULL = "full"
    SLIDING = "sliding"


class KVGroup(msgspec.Struct, frozen=True):
    """Layers with the same need, by layer index; `window` (tokens) is set for `SLIDING` groups.

    A window of w lets position q see k when q - k < w.
    """

    kind: KVGroupKind
    layers: list[int]
    window: int | None = None


class KVCacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The pool: `num_blocks` blocks of `block_size` tokens each, and the groups that share it."""

    num_blocks: int
    block_size: int
    groups: list[KVGroup]
    enable_prefix_caching: bool = True
    hash_algo: str = "sha256"
