"""What one forward gets: token ids, positions and attention geometry, made from the persistent batch.

Owns: the order of requests within a forward (one token first) and which of its rows are sampled from. Reads the batch,
never writes it. Knows nothing of the model.

Tensors live in buffers made once for the largest step, so a recorded forward finds the same addresses every time.
Shapes: T tokens, B requests of the forward, M blocks per table row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.contracts import AttentionBatch, StepBindings
from turret.worker.batch import Batch, StepWork

__all__ = ["InputBuilder", "PromptRows", "StepInputs"]


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Rows [start, stop) of the forward predict the prompt tokens `targets` of request `place`; `count` best wanted."""

    place: int
    start: int
    stop: int
    targets: list[int]
    count: int


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One forward. `ids` and `positions` int64 [T]; `attention[g]` is group g's geometry.

    `sampled` int64 [S] are the places (in plan order) of requests whose last row is sampled from; `last_rows` int64 [S]
    are those rows, `rows` int64 [S] the requests' rows in the batch.
    """

    ids: Tensor
    positions: Tensor
    attention: list[AttentionBatch]
    sampled: NDArray[np.int64]
    last_rows: NDArray[np.int64]
    rows: NDArray[np.int64]
    prompts: list[PromptRows]

    def bindings(self) -> StepBindings:
        """What a replay needs of them."""
        return StepBindings(self.ids, self.positions, self.attention)


class _Buffer:
    """Memory for one value per token or request, as a tensor and as an array, and the parts of it that steps took."""

    __slots__ = ("_parts", "array", "tensor")

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        self.tensor = torch.zeros(size, dtype=dtype)
        self.array: NDArray[Any] = self.tensor.numpy()
        self._parts: dict[int, Tensor] = {}

    def part(self, count: int) -> Tensor:
        """The first `count` values."""
        part = self._parts.get(count)
        if part is None:
            part = self._parts[count] = self.tensor[:count]
        return part


class InputBuilder:
    """Builds inputs for up to `max_tokens` tokens; `windows[g]` is group g's sliding window or None.

    A step that gives every request one token, as most do, is made apart: between two steps the weights have passed
    through the caches, and what it costs is the code and the data that it touches for the first time.
    """

    def __init__(self, batch: Batch, windows: list[int | None], max_tokens: int, device: str) -> None:
        self._batch = batch
        self._windows = windows
        self._device = device
        seqs = batch.shape.max_num_seqs
        self._ids = _Buffer(max_tokens, torch.int64)
        self._positions = _Buffer(max_tokens, torch.int64)
        self._query_start = _Buffer(seqs + 1, torch.int32)
        self._seq_lens = _Buffer(seqs, torch.int32)
        self._slots = [_Buffer(max_tokens, torch.int64) for _ in windows]
        self._one_each = _Buffer(seqs + 1, torch.int32)
        self._one_each.array[:] = np.arange(seqs + 1)
        self._first_rows = np.arange(seqs)
        self._tables = [torch.from_numpy(table) for table in batch.tables]
        self._runs: dict[tuple[int, int], list[Tensor]] = {}

    def build(self, work: StepWork, places: NDArray[np.int64]) -> StepInputs:
        """Inputs of a forward over the requests at `places` of the plan."""
        counts = work.counts[places]
        one = counts == 1
        num_decodes = int(np.count_nonzero(one))
        if num_decodes == len(places) and self._device == "cpu" and not self._batch.prompt_logprobs:
            return self._decode(work, places)
        if 0 < num_decodes < len(places):
            places = np.concatenate((places[one], places[~one]))
            counts = work.counts[places]
        rows, computed = work.rows[places], work.computed[places]
        ends = np.cumsum(counts)
        token_rows, positions = _tokens(rows, computed, counts, ends)
        total = int(ends[-1])
        batch = self._batch
        ids = self._fill(self._ids, batch.tokens[token_rows, positions], total)
        where = self._fill(self._positions, positions, total)
        seq_lens = computed + counts
        geometry = _Geometry(rows, token_rows, positions, ends, seq_lens, num_decodes, int(counts.max()))
        chosen = seq_lens >= batch.known[rows]
        return StepInputs(
            ids, where, self._attention(geometry), places[chosen], ends[chosen] - 1, rows[chosen],
            self._prompts(work, places, ends) if batch.prompt_logprobs else [])

    def _decode(self, work: StepWork, places: NDArray[np.int64]) -> StepInputs:
        """Every request has one token."""
        batch, count = self._batch, len(places)
        rows, positions = work.rows[places], work.computed[places]
        self._ids.array[:count] = batch.tokens[rows, positions]
        self._positions.array[:count] = positions
        lens = positions + 1
        self._seq_lens.array[:count] = lens
        lens_list = lens.tolist()
        longest, size = max(lens_list), batch.shape.block_size
        blocks = positions // size
        within = positions - blocks * size
        starts, start_list = self._one_each.part(count + 1), list(range(count + 1))
        seq_lens = self._seq_lens.part(count)
        attention = []
        for group, table in enumerate(self._block_tables(rows, longest)):
            self._slots[group].array[:count] = batch.tables[group][rows, blocks] * size + within
            attention.append(AttentionBatch(
                starts, seq_lens, table, self._slots[group].part(count), start_list, lens_list, 1, longest, count, size,
                self._windows[group]))
        last = self._first_rows[:count]
        chosen = lens >= batch.known[rows]
        if not chosen.all():
            places, last, rows = places[chosen], last[chosen], rows[chosen]
        return StepInputs(self._ids.part(count), self._positions.part(count), attention, places, last, rows, [])

    def _block_tables(self, rows: NDArray[np.int64], longest: int) -> list[Tensor]:
        """Each group's table of these requests: where they are neighbours, the batch's own."""
        first, count = int(rows[0]), len(rows)
        if not np.array_equal(rows, self._first_rows[first : first + count]):
            width = -(-longest // self._batch.shape.block_size)
            return [torch.from_numpy(table[rows, :width]) for table in self._batch.tables]
        found = self._runs.get((first, count))
        if found is None:
            found = self._runs[first, count] = [table[first : first + count] for table in self._tables]
        return found

    def _fill(self, buffer: _Buffer, values: NDArray[np.int64] | NDArray[np.int32], count: int) -> Tensor:
        buffer.array[:count] = values
        part = buffer.part(count)
        return part if self._device == "cpu" else part.to(self._device)

    def _attention(self, geometry: _Geometry) -> list[AttentionBatch]:
        size = self._batch.shape.block_size
        requests = len(geometry.rows)
        starts = self._query_start
        starts.array[1 : requests + 1] = geometry.ends
        query_start = starts.part(requests + 1)
        if self._device != "cpu":
            query_start = query_start.to(self._device)
        seq_lens = self._fill(self._seq_lens, geometry.seq_lens, requests)
        start_list, lens_list = [0, *geometry.ends.tolist()], geometry.seq_lens.tolist()
        longest = max(lens_list)
        block, offset = np.divmod(geometry.positions, size)
        found = []
        for group, table in enumerate(self._batch.tables):
            slots = table[geometry.token_rows, block].astype(np.int64) * size + offset
            blocks = torch.from_numpy(table[geometry.rows, : -(-longest // size)])
            found.append(AttentionBatch(
                query_start, seq_lens, blocks if self._device == "cpu" else blocks.to(self._device),
                self._fill(self._slots[group], slots, len(slots)), start_list, lens_list,
                geometry.max_query_len, longest, geometry.num_decodes, size, self._windows[group]))
        return found

    def _prompts(self, work: StepWork, places: NDArray[np.int64], ends: NDArray[np.int64]) -> list[PromptRows]:
        found = []
        for place, end in zip(places.tolist(), ends.tolist(), strict=True):
            row, computed, count = (int(a[place]) for a in (work.rows, work.computed, work.counts))
            rows = min(count, int(self._batch.num_prompt[row]) - 1 - computed)
            if row in self._batch.prompt_logprobs and rows > 0:
                targets = self._batch.tokens[row, computed + 1 : computed + 1 + rows].tolist()
                start = end - count
                found.append(PromptRows(place, start, start + rows, targets, self._batch.prompt_logprobs[row]))
        return found


@dataclass(frozen=True, slots=True)
class _Geometry:
    rows: NDArray[np.int64]
    token_rows: NDArray[np.int64]
    positions: NDArray[np.int64]
    ends: NDArray[np.int64]
    seq_lens: NDArray[np.int64]
    num_decodes: int
    max_query_len: int


def _tokens(
    rows: NDArray[np.int64], computed: NDArray[np.int64], counts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Batch row and position of every token of the forward."""
    total = int(ends[-1])
    if total == len(rows):
        return rows, computed
    first = np.repeat(computed - (ends - counts), counts)
    return np.repeat(rows, counts), first + np.arange(total)
