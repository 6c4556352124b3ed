"""The op `sample` in the native library.

Owns: `NativeSample`: how rows are laid out for it and read back. Knows no request.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.contracts import SampleFault, SampleOutcome, SampleRow
from turret.nn.ops import REFERENCE_OPS
from turret_platform_cpu.native import Native

__all__ = ["NativeSample"]

_ROW = struct.Struct("@PddddqPPqPqPPqPPqdddqqPPqqqqdd")
"""SampleRow of native/sample.h."""
_WORDS = _ROW.size // 8
_TOKEN, _RANK, _FOUND, _FAULT, _VALUE = 24, 25, 26, 27, 28
"""Words of a row that hold its results."""


@dataclass(frozen=True, slots=True)
class _Best:
    """Most likely tokens of all rows, one row behind the other: room for `most` of each, ids and values."""

    most: list[int]
    ids: NDArray[np.int64]
    values: NDArray[np.float64]


class NativeSample:
    """`sample` (contract `ops`): no sort, one pass over a row for most of what can be asked for."""

    masks = True
    """Says that rows may have a mask (contracts/sample.py)."""

    def __init__(self, native: Native) -> None:
        self._call = native.op("tc_sample")

    def __call__(self, out: list[SampleOutcome], logits: Tensor, rows: Sequence[SampleRow]) -> None:
        """Rows of float32 on the CPU; anything else goes to the reference."""
        if logits.dtype != torch.float32 or logits.device.type != "cpu" or logits.stride(-1) != 1:
            REFERENCE_OPS["sample"](out, logits, rows)
            return
        count, vocab = logits.shape
        most = [min(row.logprobs or 0, vocab) for row in rows]
        ids = np.empty(sum(most), dtype=np.int64)
        values = np.empty(sum(most), dtype=np.float64)
        words = np.zeros((count, _WORDS), dtype=np.int64)
        at, step = logits.data_ptr(), 4 * logits.stride(0)
        start = edits = 0
        for i, row in enumerate(rows):
            places = ids.ctypes.data + 8 * start, values.ctypes.data + 8 * start
            _pack(words, i, at + i * step, row, places)
            start += most[i]
            edits = max(edits, _size(row.banned) + _size(row.bias_ids) + _size(row.seen))
        self._call(words.ctypes.data, count, vocab, edits, 0, 0)
        out[:] = _outcomes(words, rows, _Best(most, ids, values))


_NO_RULES = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0, 0.0, 0.0)


def _pack(words: NDArray[np.int64], i: int, x: int, row: SampleRow, places: tuple[int, int]) -> None:
    rules = not (row.mask is row.allowed is row.banned is row.bias_ids is row.seen is None)
    _ROW.pack_into(
        words.data, i * _ROW.size, x, row.uniform, row.temperature, row.top_p, row.min_p, row.top_k,
        *(_rules(row) if rules else _NO_RULES),
        -1 if row.logprobs is None else row.logprobs, row.normalize, *places, 0, 0, 0, 0, 0.0, 0.0,
    )  # fmt: skip


def _rules(row: SampleRow) -> tuple[float, ...]:
    return (
        _at(row.mask), *_place(row.allowed), *_place(row.banned), _at(row.bias_ids), *_place(row.bias),
        _at(row.seen), *_place(row.counts), row.repetition, row.presence, row.frequency,
    )  # fmt: skip


def _size(array: NDArray[Any] | None) -> int:
    return 0 if array is None else array.size


def _at(array: NDArray[Any] | None) -> int:
    return 0 if array is None else array.ctypes.data


def _place(array: NDArray[Any] | None) -> tuple[int, int]:
    return _at(array), _size(array)


def _outcomes(words: NDArray[np.int64], rows: Sequence[SampleRow], best: _Best) -> list[SampleOutcome]:
    tokens, faults = words[:, _TOKEN].tolist(), words[:, _FAULT].tolist()
    found: list[SampleOutcome] = []
    start = 0
    for i, row in enumerate(rows):
        if faults[i]:
            found.append(SampleOutcome(-1, SampleFault(faults[i])))
        elif row.logprobs is None:
            found.append(SampleOutcome(tokens[i]))
        else:
            stop = start + int(words[i, _FOUND])
            value = float(words[i, _VALUE : _VALUE + 1].view(np.float64)[0])
            ids, values = best.ids[start:stop].tolist(), best.values[start:stop].tolist()
            found.append(SampleOutcome(tokens[i], SampleFault.NONE, value, int(words[i, _RANK]), ids, values))
        start += best.most[i]
    return found
