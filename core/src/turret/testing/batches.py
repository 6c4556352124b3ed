"""Batches for tests: requests by (cached, new) tokens, with scattered pages.

Owns the geometry that a scheduler would make. Knows nothing of heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from turret.contracts import AttentionBatch

__all__ = ["Pages", "make_batch", "moved"]


@dataclass(frozen=True)
class Pages:
    """Page ids of some requests: `table` int32 [B, M], no two alike, in no order, none of them the null page 0."""

    table: Tensor
    block_size: int
    num_blocks: int

    @classmethod
    def scattered(cls, lengths: Sequence[int], block_size: int, seed: int = 0) -> Pages:
        """Pages for requests of up to `lengths` tokens each, among twice as many."""
        needed = [-(-length // block_size) for length in lengths]
        num_blocks = 2 * sum(needed) + 2
        order = torch.randperm(num_blocks - 1, generator=torch.Generator().manual_seed(seed)) + 1
        table = torch.zeros(len(lengths), max(needed), dtype=torch.int32)
        taken = 0
        for row, count in enumerate(needed):
            table[row, :count] = order[taken : taken + count].to(torch.int32)
            taken += count
        return cls(table, block_size, num_blocks)

    def slots(self, row: int, start: int, stop: int) -> Tensor:
        """Slots int64 of positions [start, stop) of one request."""
        positions = torch.arange(start, stop)
        pages = self.table[row].long()[positions // self.block_size]
        return pages * self.block_size + positions % self.block_size


def make_batch(
    pages: Pages, spans: Sequence[tuple[int, int]], window: int | None = None, *, bidirectional: bool = False
) -> AttentionBatch:
    """One step in which request i has spans[i] = (cached, new) tokens; those with one new token must come first."""
    new = [count for _, count in spans]
    seq_lens = [cached + count for cached, count in spans]
    starts = [0]
    for count in new:
        starts.append(starts[-1] + count)
    slots = [pages.slots(row, cached, cached + count) for row, (cached, count) in enumerate(spans)]
    decodes = next((row for row, count in enumerate(new) if count != 1), len(new))
    return AttentionBatch(
        query_start=torch.tensor(starts, dtype=torch.int32),
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
        block_table=pages.table[: len(spans)],
        slot_mapping=torch.cat(slots),
        query_start_list=starts,
        seq_lens_list=seq_lens,
        max_query_len=max(new),
        max_seq_len=max(seq_lens),
        num_decodes=decodes,
        block_size=pages.block_size,
        window=window,
        bidirectional=bidirectional,
    )


def moved(batch: AttentionBatch, device: str) -> AttentionBatch:
    """The same batch with its tensors on a device."""
    names = ("query_start", "seq_lens", "block_table", "slot_mapping")
    return replace(batch, **{name: getattr(batch, name).to(device) for name in names})
