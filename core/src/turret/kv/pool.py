"""One pool of block ids: reference counts, the free list and the prefix index.

Owns: which blocks are held, in which order free ones are reused, and which block holds a named content. Knows nothing
of requests, tokens or windows.

The free list is doubly linked through two lists of ints, with the null block as its sentinel: every operation is O(1)
and touches no object. Free blocks with a named content are reused last, least recently released first; those without
are reused first, since nobody can ask for them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from turret.errors import EngineError
from turret.kv.residency import Residency

__all__ = ["NULL_BLOCK", "BlockPool"]

NULL_BLOCK = 0
"""Stands in tables for a page out of a sliding window. Never allocated, never read."""


class BlockPool:
    """Blocks 1 .. num_blocks - 1, shared by `num_groups` groups; a block belongs to one group while it is named.
    `residency` watches how long they stay."""

    __slots__ = ("_digest", "_group", "_index", "_next", "_num_free", "_prev", "_refs", "_residency", "num_blocks")

    def __init__(self, num_blocks: int, num_groups: int, residency: Residency | None = None) -> None:
        self.num_blocks = num_blocks
        self._residency = residency
        self._refs = [0] * num_blocks
        self._next = [*range(1, num_blocks), NULL_BLOCK]
        self._prev = [num_blocks - 1, *range(num_blocks - 1)]
        self._num_free = num_blocks - 1
        self._digest: list[bytes | None] = [None] * num_blocks
        self._group = [0] * num_blocks
        self._index: list[dict[bytes, int]] = [{} for _ in range(num_groups)]

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds, named or not."""
        return self._num_free

    @property
    def num_used(self) -> int:
        """Blocks that somebody holds."""
        return self.num_blocks - 1 - self._num_free

    def index(self, group: int) -> Mapping[bytes, int]:
        """Block by content name, of one group; to look up, never to change."""
        return self._index[group]

    def references(self, block: int) -> int:
        """How many tables hold the block."""
        return self._refs[block]

    def free_order(self) -> Iterable[int]:
        """Free blocks in the order in which they will be taken."""
        block = self._next[NULL_BLOCK]
        while block != NULL_BLOCK:
            yield block
            block = self._next[block]

    def take(self, count: int) -> list[int]:
        """`count` free blocks, each held once; their old content is forgotten. The caller has checked `num_free`."""
        if count > self._num_free:
            raise EngineError(f"{count} KV blocks were taken from a pool with {self._num_free} free")
        taken = []
        for _ in range(count):
            block = self._next[NULL_BLOCK]
            self._unlink(block)
            self._forget(block)
            self._refs[block] = 1
            taken.append(block)
        if self._residency is not None:
            for block in taken:
                self._residency.taken(block)
        return taken

    def hold(self, block: int) -> None:
        """One more holder; a free block leaves the free list."""
        if self._refs[block] == 0:
            self._unlink(block)
        self._refs[block] += 1
        if self._residency is not None:
            self._residency.used_again(block)

    def release(self, block: int) -> None:
        """One holder less; the last one returns the block to the free list."""
        refs = self._refs[block] - 1
        if refs < 0 or block == NULL_BLOCK:
            raise EngineError(f"KV block {block} was released more often than it was held")
        self._refs[block] = refs
        if refs == 0:
            self._link(block, at_tail=self._digest[block] is not None)

    def name(self, block: int, group: int, digest: bytes) -> None:
        """Let the held, full block be found by its content; of two with equal content the first stays in the index."""
        index = self._index[group]
        if self._digest[block] is None and digest not in index:
            index[digest] = block
            self._digest[block] = digest
            self._group[block] = group

    def forget_all(self) -> None:
        """Empty the index; no block may be held."""
        for index in self._index:
            for block in index.values():
                self._digest[block] = None
            index.clear()
        if self._residency is not None:
            self._residency.forget()

    def _forget(self, block: int) -> None:
        digest = self._digest[block]
        if digest is not None:
            del self._index[self._group[block]][digest]
            self._digest[block] = None

    def _unlink(self, block: int) -> None:
        before, after = self._prev[block], self._next[block]
        self._next[before] = after
        self._prev[after] = before
        self._num_free -= 1

    def _link(self, block: int, at_tail: bool) -> None:
        before = self._prev[NULL_BLOCK] if at_tail else NULL_BLOCK
        after = self._next[before]
        self._next[before] = self._prev[after] = block
        self._prev[block], self._next[block] = before, after
        self._num_free += 1
