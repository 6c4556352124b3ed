"""Drives a model step by step without engine or scheduler: pages, tables and batches made by hand.

Owns: `ModelDriver`. Knows no request, queue or sampler.

It is stricter than an engine: the cache starts as not-a-number, a page is not-a-number again as soon as nobody holds
it, and a window's pages are let go as early as the contract allows. A backend that reads what it may not shows it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor

from turret.contracts import AttentionBackend, AttentionBatch, GraphRecorder, Model, StepBindings
from turret.messages import KVGroup
from turret.nn import AttentionState, ForwardContext, LayerFactory, Scratch
from turret.testing.batches import Pages, make_batch, moved
from turret.worker.graph import RecordedForward, buffer_of

__all__ = ["DriverSettings", "ModelDriver"]


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """Sizes of the pool and of the largest step; `kv_dtype` is a torch name."""

    block_size: int = 4
    num_blocks: int = 256
    max_rows: int = 256
    kv_dtype: str = "float32"


@dataclass(slots=True)
class _Sequence:
    """Tokens in the cache, and a block table per group (0: let go, or never there)."""

    length: int = 0
    tables: list[list[int]] = field(default_factory=list)


class ModelDriver:
    """`step({"a": [ids], "b": [ids]})` runs one forward that continues each named sequence by its ids."""

    def __init__(
        self, model: Model, factory: LayerFactory, backend: AttentionBackend, settings: DriverSettings | None = None
    ) -> None:
        self.settings = settings or DriverSettings()
        self.groups: list[KVGroup] = model.kv_groups()
        self._model = model
        self._backend = backend
        self._device = factory.device
        self._tensors = self._allocate(factory)
        kv: list[Tensor] = [torch.empty(0)] * len(factory.attention_layers)
        for group in self.groups:
            for slot, layer in enumerate(group.layers):
                kv[layer] = self._tensors[slot]
        scratch = Scratch(self.settings.max_rows, factory.device)
        self._ctx = ForwardContext(dict(factory.ops.ops), scratch, AttentionState(backend, kv, [None] * len(kv)))
        # Pages in no order, as after a while of real use.
        order = torch.randperm(self.settings.num_blocks - 1, generator=torch.Generator().manual_seed(0)) + 1
        self._free: list[int] = order.tolist()
        self._holders: Counter[int] = Counter()
        self._sequences: dict[str, _Sequence] = {}
        self._recorder: GraphRecorder | None = None
        self._recorded: RecordedForward | None = None

    def record_with(self, recorder: GraphRecorder | None) -> None:
        """The next step is recorded, and those after it replay it over spoilt scratch memory; None: no more."""
        self._recorder, self._recorded = recorder, None

    def step(self, work: dict[str, list[int]]) -> dict[str, Tensor]:
        """Logits [n, V] of each sequence's n new tokens."""
        order = sorted(work, key=lambda name: len(work[name]) > 1)
        for name in order:
            self._extend(name, len(work[name]))
        batches = [self._batch(index, order, work) for index in range(len(self.groups))]
        ids = torch.tensor([token for name in order for token in work[name]], device=self._device)
        lengths = [len(work[name]) for name in order]
        hidden = self._hidden(StepBindings(ids, self._positions(order, lengths), batches))
        rows = torch.split(self._model.logits(hidden, self._ctx).clone(), lengths)
        for name, length in zip(order, lengths, strict=True):
            self._sequences[name].length += length
            self._let_go_of_window(self._sequences[name])
        return dict(zip(order, rows, strict=True))

    def _hidden(self, step: StepBindings) -> Tensor:
        scratch = self._ctx.scratch
        if self._recorded is not None:
            for buffer in scratch.buffers.values():
                buffer.fill_(float("nan") if buffer.is_floating_point() else -1)
            return self._recorded.run(step)
        if self._recorder is None:
            return self._forward(step)
        if not scratch.buffers:
            raise ValueError("run a step before the one that is recorded: buffers are made by the first")
        found: list[Tensor] = []
        program = self._recorder.record(lambda: found.append(self._forward(step)), step)
        self._recorded = RecordedForward(program, buffer_of(found[0], scratch))
        return found[0]

    def _forward(self, step: StepBindings) -> Tensor:
        for group, batch in zip(self.groups, step.attention, strict=True):
            metadata = self._backend.build(batch)
            for layer in group.layers:
                self._ctx.attention.metadata[layer] = metadata
        return self._model.forward(step.ids, step.positions, self._ctx)

    def fork(self, source: str, target: str) -> None:
        """`target` starts from the pages of `source`, as after a prefix-cache hit of all its tokens (whole blocks)."""
        origin = self._sequences[source]
        if origin.length % self.settings.block_size:
            raise ValueError(f"{source!r} has {origin.length} tokens: not a whole number of blocks")
        tables = [list(table) for table in origin.tables]
        self._holders.update(block for table in tables for block in table if block)
        self._sequences[target] = _Sequence(origin.length, tables)

    def drop(self, name: str) -> None:
        """Forget a sequence; its pages are free."""
        for table in self._sequences.pop(name).tables:
            self._release([block for block in table if block])

    def _allocate(self, factory: LayerFactory) -> list[Tensor]:
        settings = self.settings
        spec = factory.kv_specs(settings.block_size, settings.kv_dtype)[0]
        layout = self._backend.kv_layout(spec)
        shape = (settings.num_blocks, *layout.page_shape)
        slots = max(len(group.layers) for group in self.groups)
        dtype = getattr(torch, layout.dtype)
        return [torch.full(shape, float("nan"), dtype=dtype, device=factory.device) for _ in range(slots)]

    def _extend(self, name: str, count: int) -> None:
        sequence = self._sequences.setdefault(name, _Sequence(0, [[] for _ in self.groups]))
        blocks = -(-(sequence.length + count) // self.settings.block_size)
        for table in sequence.tables:
            while len(table) < blocks:
                block = self._free.pop()
                self._holders[block] += 1
                table.append(block)

    def _let_go_of_window(self, sequence: _Sequence) -> None:
        """The next token sits at `length`: it sees positions above length - window."""
        for group, table in zip(self.groups, sequence.tables, strict=True):
            if group.window is None:
                continue
            unseen = max(0, sequence.length - group.window + 1) // self.settings.block_size
            self._release([block for block in table[:unseen] if block])
            table[:unseen] = [0] * len(table[:unseen])

    def _release(self, blocks: list[int]) -> None:
        for block in blocks:
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free.append(block)
                for tensor in self._tensors:
                    tensor[block] = float("nan")

    def _positions(self, order: list[str], lengths: list[int]) -> Tensor:
        starts = [self._sequences[name].length for name in order]
        spans = [range(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        return torch.tensor([position for span in spans for position in span], device=self._device)

    def _batch(self, index: int, order: list[str], work: dict[str, list[int]]) -> AttentionBatch:
        size = self.settings.block_size
        tables = [self._sequences[name].tables[index] for name in order]
        widest = max(len(table) for table in tables)
        padded = torch.tensor([table + [0] * (widest - len(table)) for table in tables], dtype=torch.int32)
        spans = [(self._sequences[name].length, len(work[name])) for name in order]
        batch = make_batch(Pages(padded, size, self.settings.num_blocks), spans, self.groups[index].window)
        return moved(batch, self._device)
