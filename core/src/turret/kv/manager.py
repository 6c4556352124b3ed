"""Block tables of requests over one pool, with prefix hits and sliding windows.

Owns: every request's tables and hash chain; the pool is touched by nobody else. Knows nothing of queues, steps or what
tokens mean.

Invariants, which the property tests hold against a simulated worker:

1. A table covers the tokens of its request: positions [0, end of the last allocation), except pages that lie out of
   every later query's window, which read 0.
2. A block enters the prefix index only by `commit`, when each of its positions was written by a step whose result has
   arrived. Steps write only at positions >= what was committed when they were planned, so no step in flight ever
   writes into an indexed block.
3. A block that is released may be handed out at once, even while a step in flight still reads or writes it: workers
   run steps in order, and its next owner's writes lie in a later step. Since that block was not indexed for positions
   in flight (2), nobody can meet the leftover.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from turret.errors import ConfigError
from turret.kv.hashing import BlockHasher
from turret.kv.pool import NULL_BLOCK, BlockPool
from turret.kv.residency import BlockStays, Residency
from turret.kv.shapes import PoolShape, PrefixHit, PrefixStats

__all__ = ["KVCacheManager"]

_NEVER = 1 << 62


class _Sequence:
    """Tables and chain of one request. `first[g]`: pages before it are 0 (released or never held) in group g."""

    __slots__ = ("capacity", "digests", "extra", "first", "next_event", "num_indexed", "tables")

    def __init__(self, num_groups: int, extra: bytes) -> None:
        self.tables: list[list[int]] = [[] for _ in range(num_groups)]
        self.first = [0] * num_groups
        self.capacity = 0  # tokens the tables cover
        self.num_indexed = 0  # leading blocks that commit has dealt with
        self.next_event = 0  # committed tokens at which a block fills or leaves a window
        self.digests: list[bytes] = []
        self.extra = extra


class KVCacheManager:
    """Sole writer of KV blocks.

    A request's life: `match` (any number of times while it waits), `allocate` before each step, `commit` after each
    step, `free` once it is done or preempted; `free` is safe to repeat and at any time.
    """

    def __init__(self, shape: PoolShape, residency: Residency | None = None) -> None:
        if shape.num_blocks < 2:
            raise ConfigError(f"the KV cache has {shape.num_blocks} block(s), but needs 2 or more: block 0 is reserved")
        if not shape.groups:
            raise ConfigError("the KV cache has no groups: a model without attention layers needs no block manager")
        self.block_size = shape.block_size
        self.prefix_stats = PrefixStats()
        self._windows = [g.window for g in shape.groups]
        self._sliding = [(g, w) for g, w in enumerate(self._windows) if w is not None]
        self._full = [g for g, w in enumerate(self._windows) if w is None]
        self._num_groups = len(self._windows)
        self._caching = shape.enable_prefix_caching
        self._hasher = BlockHasher(shape.hash_algo)
        self._pool = BlockPool(shape.num_blocks, self._num_groups, residency)
        self._residency = residency
        self._sequences: dict[str, _Sequence] = {}
        # Shared answer of every allocation that needed no block; callers do not change what they are given.
        self._nothing: list[list[int]] = [[] for _ in self._windows]

    # -- what is left ------------------------------------------------------------------------------------------------

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now."""
        return self._pool.num_free

    @property
    def num_usable_blocks(self) -> int:
        """Blocks of the pool without the null block."""
        return self._pool.num_blocks - 1

    @property
    def usage(self) -> float:
        """Share of blocks held by requests, in [0, 1]."""
        return self._pool.num_used / self.num_usable_blocks

    def block_stays(self) -> BlockStays:
        """How long watched blocks stayed, since the last call; nothing when none are watched."""
        return BlockStays() if self._residency is None else self._residency.drain()

    def blocks_needed(self, num_tokens: int, chunk: int = 1) -> int:
        """Most blocks a sequence of `num_tokens` ever holds, over all groups, in steps of at most `chunk` tokens."""
        whole = -(-num_tokens // self.block_size)
        needed = whole * len(self._full)
        for _, window in self._sliding:
            # A step's queries see window - 1 + chunk positions, at the worst alignment to blocks.
            span = window - 1 + chunk
            needed += min(whole, (span + self.block_size - 2) // self.block_size + 1)
        return needed

    def can_ever_fit(self, num_tokens: int, chunk: int = 1) -> bool:
        """Whether an empty pool would hold the sequence."""
        return self.blocks_needed(num_tokens, chunk) <= self.num_usable_blocks

    def longest_sequence(self, limit: int) -> int:
        """Most tokens, up to `limit`, that `can_ever_fit`."""
        return bisect_right(range(1, limit + 1), self.num_usable_blocks, key=self.blocks_needed)

    def outstanding(self, request_id: str, num_tokens: int, chunk: int) -> int:
        """Blocks a request will still ask for until it holds `num_tokens`."""
        seq = self._sequences.get(request_id)
        held = 0 if seq is None else sum(len(t) - f for t, f in zip(seq.tables, seq.first, strict=True))
        return max(0, self.blocks_needed(num_tokens, chunk) - held)

    # -- a request's life --------------------------------------------------------------------------------------------

    def match(self, request_id: str, token_ids: list[int], extra: Sequence[str | None] = ()) -> PrefixHit | None:
        """The longest cached prefix of `token_ids` for all groups; None when there is none.

        At least one token is left to compute, since a step must have a query to sample from.
        """
        limit = (len(token_ids) - 1) // self.block_size
        if not self._caching or limit <= 0:
            return None
        seq = self._sequence(request_id, extra)
        if self._full:
            limit = self._match_full(seq, token_ids, limit)
        else:
            self._extend_chain(seq, token_ids, limit)
        count = self._match_sliding(seq.digests, limit)
        return self._hit(seq.digests, count) if count else None

    def begin(
        self, request_id: str, hit: PrefixHit | None, extra: Sequence[str | None] = (), num_queried: int = 0
    ) -> None:
        """Enter a request that holds nothing yet and give it the blocks of `hit`, which leave the free list.

        `num_queried` tokens were looked up, for the statistics; 0 when this lookup should not count.
        """
        seq = self._sequence(request_id, extra)
        if num_queried:
            self.prefix_stats.queries += num_queried
            self.prefix_stats.hits += 0 if hit is None else hit.num_tokens
        if hit is None:
            return
        for group, (table, ids) in enumerate(zip(seq.tables, hit.block_ids, strict=True)):
            for block in ids:
                if block != NULL_BLOCK:
                    self._pool.hold(block)
                else:
                    seq.first[group] += 1
            table.extend(ids)
        seq.capacity = hit.num_tokens
        seq.num_indexed = hit.num_tokens // self.block_size

    def num_idle(self, hit: PrefixHit | None) -> int:
        """Blocks that a hit would take off the free list."""
        if hit is None:
            return 0
        return sum(b != NULL_BLOCK and self._pool.references(b) == 0 for ids in hit.block_ids for b in ids)

    def room(self, request_id: str, start: int, want: int) -> int:
        """How many of `want` tokens from `start` on can be allocated now, pages out of the window given back first."""
        seq = self._sequences[request_id]
        if start + want <= seq.capacity:
            return want
        self._release_before(seq, start)
        blocks = seq.capacity // self.block_size + self._pool.num_free // self._num_groups
        return max(0, min(want, blocks * self.block_size - start))

    def room_for(self, hit: PrefixHit | None, want: int) -> int:
        """How many of `want` tokens after `hit` a request that holds nothing could get now."""
        start = hit.num_tokens if hit is not None else 0
        blocks = start // self.block_size + (self._pool.num_free - self.num_idle(hit)) // self._num_groups
        return max(0, min(want, blocks * self.block_size - start))

    def allocate(self, request_id: str, start: int, end: int) -> list[list[int]] | None:
        """Let the tables cover tokens up to `end`, for a step over [start, end).

        Returns the ids appended per group (read-only), or None when the pool has too few; nothing was taken then.
        """
        seq = self._sequences[request_id]
        if end <= seq.capacity:
            return self._nothing
        new = -(-end // self.block_size) - seq.capacity // self.block_size
        if new * self._num_groups > self._pool.num_free:
            # Under pressure pages leave the window by what is planned, not by what is committed: safe by invariant 3,
            # but such pages never reach the prefix index, so it is not the rule.
            self._release_before(seq, start)
            if new * self._num_groups > self._pool.num_free:
                return None
        taken = [self._pool.take(new) for _ in self._windows]
        for table, ids in zip(seq.tables, taken, strict=True):
            table.extend(ids)
        seq.capacity += new * self.block_size
        return taken

    def commit(self, request_id: str, num_computed: int, token_ids: list[int]) -> None:
        """Positions [0, num_computed) of `token_ids` are written: index full blocks, return pages out of windows."""
        seq = self._sequences[request_id]
        if num_computed < seq.next_event:
            return
        num_full = num_computed // self.block_size
        if self._caching and num_full > seq.num_indexed:
            self._extend_chain(seq, token_ids, num_full)
            for position in range(seq.num_indexed, num_full):
                for group, table in enumerate(seq.tables):
                    if table[position] != NULL_BLOCK:
                        self._pool.name(table[position], group, seq.digests[position])
        seq.num_indexed = num_full
        self._release_before(seq, num_computed)
        seq.next_event = self._next_event(seq)

    def free(self, request_id: str) -> None:
        """Return all blocks, last pages first so that the start of a prompt survives longest; safe to repeat."""
        seq = self._sequences.pop(request_id, None)
        if seq is None:
            return
        for position in reversed(range(len(seq.tables[0]))):
            for table in seq.tables:
                if table[position] != NULL_BLOCK:
                    self._pool.release(table[position])

    def block_ids(self, request_id: str) -> list[list[int]]:
        """A copy of the request's tables, one list per group."""
        return [list(t) for t in self._sequences[request_id].tables]

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; refused (False) while any block is held."""
        if self._pool.num_used:
            return False
        self._pool.forget_all()
        return True

    # -- inside ------------------------------------------------------------------------------------------------------

    def _sequence(self, request_id: str, extra: Sequence[str | None]) -> _Sequence:
        seq = self._sequences.get(request_id)
        if seq is None:
            seq = self._sequences[request_id] = _Sequence(self._num_groups, self._hasher.extra(extra))
        return seq

    def _extend_chain(self, seq: _Sequence, token_ids: list[int], num_blocks: int) -> None:
        size, digests, chain = self.block_size, seq.digests, self._hasher.chain
        parent = digests[-1] if digests else self._hasher.root
        for i in range(len(digests), num_blocks):
            parent = chain(parent, token_ids[i * size : (i + 1) * size], seq.extra)
            digests.append(parent)

    def _match_full(self, seq: _Sequence, token_ids: list[int], limit: int) -> int:
        """Leading blocks, up to `limit`, that every full group has; hashes no further than the first miss."""
        indexes = [self._pool.index(g) for g in self._full]
        for i in range(limit):
            if i == len(seq.digests):
                self._extend_chain(seq, token_ids, i + 1)
            digest = seq.digests[i]
            for index in indexes:
                if digest not in index:
                    return i
        return limit

    def _match_sliding(self, digests: list[bytes], limit: int) -> int:
        """Largest hit of at most `limit` blocks that all sliding groups allow; each only ever lowers it."""
        count, settled = limit, 0
        while count and settled < len(self._sliding):
            settled = 0
            for group, window in self._sliding:
                lowered = self._fit_window(self._pool.index(group), digests, count, window)
                settled += lowered == count
                count = lowered
        return count

    def _fit_window(self, index: Mapping[bytes, int], digests: list[bytes], count: int, window: int) -> int:
        """Largest hit of at most `count` blocks whose last window of pages the group has."""
        while count:
            missing = count - 1
            first = self._first_page(count * self.block_size, window)
            while missing >= first and digests[missing] in index:
                missing -= 1
            if missing < first:
                return count
            count = missing  # any hit in (missing, count] would need the missing page
        return 0

    def _hit(self, digests: list[bytes], count: int) -> PrefixHit:
        ids = []
        for group, window in enumerate(self._windows):
            index = self._pool.index(group)
            first = 0 if window is None else min(count, self._first_page(count * self.block_size, window))
            ids.append([NULL_BLOCK] * first + [index[d] for d in digests[first:count]])
        return PrefixHit(count * self.block_size, ids)

    def _first_page(self, position: int, window: int) -> int:
        """First page that a query at `position` or later can see."""
        return max(0, position - window + 1) // self.block_size

    def _release_before(self, seq: _Sequence, position: int) -> None:
        """Return pages that no query at `position` or later sees."""
        for group, window in self._sliding:
            table, first = seq.tables[group], seq.first[group]
            last = min(self._first_page(position, window), len(table))
            for i in reversed(range(first, last)):
                self._pool.release(table[i])
                table[i] = NULL_BLOCK
            seq.first[group] = max(first, last)

    def _next_event(self, seq: _Sequence) -> int:
        event = (seq.num_indexed + 1) * self.block_size if self._caching else _NEVER
        for group, window in self._sliding:
            event = min(event, (seq.first[group] + 1) * self.block_size + window - 1)
        return event
