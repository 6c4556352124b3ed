"""A step's plan: which pages each query looks at, and which of their slots it may see.

Owns: `StepMetadata` and how it is made from an `AttentionBatch`. Knows nothing of heads or numbers.

Made once per step and KV group, shared by the group's layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from turret.contracts import AttentionBatch

__all__ = ["DecodeGroup", "PrefillTile", "Sight", "StepMetadata", "plan_step"]

TILE = 256
"""Queries of one request that are computed at once."""

GROUP_TOKENS = 1 << 16
"""Cached tokens that one decode gather may fetch."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What n queries of b problems see of the L gathered slots: `visible` and `distance` (key position minus query
    position), both [b, n, L]. Masks made from them are kept, since every layer of the group asks for the same."""

    visible: Tensor
    distance: Tensor
    masks: dict[tuple[int, torch.dtype], Tensor] = field(default_factory=dict)

    def spread(self, values: Tensor, group: int) -> Tensor:
        """[b, 1, group * n, L] (or broadcastable to it) of values [b, n, L]: rows of one KV head, heads first."""
        return values[:, None] if values.shape[1] == 1 else values.repeat(1, group, 1)[:, None]

    def mask(self, group: int, dtype: torch.dtype) -> Tensor:
        """What to add to scores: 0 where visible, minus infinity elsewhere."""
        found = self.masks.get((group, dtype))
        if found is None:
            hidden = self.spread(~self.visible, group)
            found = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))
            self.masks[group, dtype] = found
        return found


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Requests with one token each: `rows` [b] are their rows of q, `pages` [b, P] what they look at."""

    rows: Tensor
    pages: Tensor
    sight: Sight


@dataclass(frozen=True, slots=True)
class PrefillTile:
    """Queries [start, stop) of the step, all of one request, and the `pages` [P] they look at."""

    start: int
    stop: int
    pages: Tensor
    sight: Sight


@dataclass(frozen=True, slots=True)
class StepMetadata:
    """`slots` [T] is where new tokens go; `fresh_pages` are those that begin with this step."""

    slots: Tensor
    fresh_pages: Tensor
    decodes: list[DecodeGroup]
    prefills: list[PrefillTile]


def plan_step(batch: AttentionBatch) -> StepMetadata:
    """Decodes in groups of similar length, every other request in tiles."""
    slots, size = batch.slot_mapping, batch.block_size
    decodes = 0 if batch.bidirectional else batch.num_decodes
    prefills = [tile for index in range(decodes, len(batch.seq_lens_list)) for tile in _tiles(batch, index)]
    fresh = torch.div(slots[slots % size == 0], size, rounding_mode="floor")
    return StepMetadata(slots, fresh, _decode_groups(batch, decodes), prefills)


def _decode_groups(batch: AttentionBatch, count: int) -> list[DecodeGroup]:
    """Longest first; a group ends where a request needs less than half the pages of the group's first."""
    pages = [_page_span(batch, length)[1] for length in batch.seq_lens_list[:count]]
    order = sorted(range(count), key=lambda index: -pages[index])
    groups: list[list[int]] = []
    for index in order:
        most = max(1, GROUP_TOKENS // (batch.block_size * pages[groups[-1][0]])) if groups else 0
        if groups and pages[index] * 2 > pages[groups[-1][0]] and len(groups[-1]) < most:
            groups[-1].append(index)
        else:
            groups.append([index])
    return [_decode_group(batch, sorted(group)) for group in groups]


def _page_span(batch: AttentionBatch, length: int) -> tuple[int, int]:
    """First page that the last of `length` tokens sees, and how many."""
    low = 0 if batch.window is None else max(0, length - batch.window)
    first = low // batch.block_size
    return first, -(-length // batch.block_size) - first


def _decode_group(batch: AttentionBatch, members: list[int]) -> DecodeGroup:
    device, size = batch.block_table.device, batch.block_size
    spans = [_page_span(batch, batch.seq_lens_list[index]) for index in members]
    widest = max(count for _, count in spans)
    # Padding repeats a page of the same request: never read, but its numbers must not be another request's.
    columns = [[first + min(step, count - 1) for step in range(widest)] for first, count in spans]
    rows = torch.tensor(members, device=device)
    pages = batch.block_table[rows].gather(1, torch.tensor(columns, device=device)).long()
    first = torch.tensor([first * size for first, _ in spans], device=device)
    lengths = batch.seq_lens[rows].long()
    keys = first[:, None] + torch.arange(widest * size, device=device)
    distance = keys - (lengths[:, None] - 1)
    visible = distance <= 0
    if batch.window is not None:
        visible &= distance > -batch.window
    return DecodeGroup(rows, pages, Sight(visible[:, None], distance[:, None]))


def _tiles(batch: AttentionBatch, index: int) -> list[PrefillTile]:
    begin, end = batch.query_start_list[index], batch.query_start_list[index + 1]
    cached = batch.seq_lens_list[index] - (end - begin)
    spans = [(start, min(end, start + TILE)) for start in range(begin, end, TILE)]
    return [_tile(batch, index, span, cached - begin) for span in spans]


def _tile(batch: AttentionBatch, index: int, rows: tuple[int, int], shift: int) -> PrefillTile:
    """`shift` turns a row of the step into a position of the request."""
    device, size, window = batch.block_table.device, batch.block_size, batch.window
    length = batch.seq_lens_list[index]
    first_query, last_query = rows[0] + shift, rows[1] - 1 + shift
    low = 0 if window is None else max(0, first_query - window + 1)
    high = last_query + 1
    if batch.bidirectional:
        high = length if window is None else min(length, last_query + window)
    first, stop = low // size, -(-high // size)
    pages = batch.block_table[index, first:stop].long()
    keys = torch.arange(first * size, stop * size, device=device)
    distance = keys[None, :] - torch.arange(first_query, last_query + 1, device=device)[:, None]
    visible = (keys < length).expand_as(distance) if batch.bidirectional else distance <= 0
    if window is not None:
        visible = visible & (distance > -window) & (distance < window)
    return PrefillTile(rows[0], rows[1], pages, Sight(visible[None], distance[None]))
