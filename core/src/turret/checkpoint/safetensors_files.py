"""Safetensors files: the header, checked against the file, and the iteration over tensors as mapped views.

Owns: the container format and the index of sharded checkpoints. Knows nothing of torch: a view is bytes, a shape and
the name of a dtype, so bfloat16 and fp8 pass through as they are.

Source: https://github.com/huggingface/safetensors (format section of its README).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from turret.checkpoint.mapped import map_file
from turret.checkpoint.model import Checkpoint
from turret.errors import LoadError

__all__ = [
    "SAFETENSORS_BITS",
    "SAFETENSORS_INDEX",
    "TensorView",
    "iter_safetensors",
    "open_safetensors",
    "read_index",
]

SAFETENSORS_INDEX = "model.safetensors.index.json"
SAFETENSORS_BITS = MappingProxyType({
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
})  # fmt: skip
"""Bits of one value of each dtype the format knows."""
_MAX_HEADER = 100_000_000  # bytes; the format's own limit


@dataclass(frozen=True, slots=True)
class TensorView:
    """One stored tensor: `dtype` in the format's words ("BF16"), `data` its bytes in row-major order, mapped."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview
    file: str


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


def open_safetensors(path: str | Path) -> dict[str, TensorView]:
    """Map one file and check its header; the tensors by name, in the order of their bytes.

    Raises LoadError naming the file and the tensor at fault.
    """
    path = str(path)
    buffer = map_file(path)
    header, start = _read_header(buffer, path)
    rows = sorted(header.items(), key=lambda item: item[1].data_offsets)
    views: dict[str, TensorView] = {}
    at = 0
    for name, row in rows:
        begin, end = row.data_offsets
        _check_row(path, name, row, len(buffer) - start)
        if begin != at:
            raise LoadError(f"{path}: tensor {name!r} begins at byte {begin} of the data, not at {at}: it is corrupt")
        views[name] = TensorView(name, row.dtype, tuple(row.shape), buffer[start + begin : start + end], path)
        at = end
    if at != len(buffer) - start:
        raise LoadError(f"{path}: {len(buffer) - start - at} bytes after the last tensor belong to none: it is corrupt")
    return views


def iter_safetensors(checkpoint: Checkpoint) -> Iterator[TensorView]:
    """Every tensor of the checkpoint, file by file in the order of the bytes, each a view of mapped memory.

    A view stays valid as long as it is held; nothing is copied. With an index, a tensor that the index places in a file
    which does not hold it is a LoadError naming both, as is a tensor that two files hold.
    """
    expected = read_index(Path(checkpoint.path))
    seen: dict[str, str] = {}
    for file in checkpoint.weight_files:
        views = open_safetensors(file)
        if expected is not None:
            missing = [n for n, f in expected.items() if f == Path(file).name and n not in views]
            if missing:
                raise LoadError(
                    f"{file}: tensor {missing[0]!r} is missing although {SAFETENSORS_INDEX} places it here"
                    + (f" (and {len(missing) - 1} more)" if len(missing) > 1 else "")
                )
        for view in views.values():
            if view.name in seen:
                raise LoadError(f"{file}: tensor {view.name!r} is already in {seen[view.name]}")
            seen[view.name] = file
            yield view


def read_index(directory: Path, file: str = SAFETENSORS_INDEX) -> Mapping[str, str] | None:
    """File name by tensor name, from the index of a sharded checkpoint; None when there is no index.

    File names are checked to be plain names, so that an index cannot point outside its directory.
    """
    path = directory / file
    if not path.is_file():
        return None
    try:
        index = msgspec.json.decode(path.read_bytes(), type=_Index).weight_map
    except (msgspec.DecodeError, OSError) as exc:
        raise LoadError(f"{path}: not a weight index: {exc}") from None
    for tensor, name in index.items():
        if Path(name).name != name or name in ("", ".", ".."):
            raise LoadError(f"{path}: tensor {tensor!r} is placed in {name!r}, which is not a file name")
    return index


def _read_header(buffer: memoryview, path: str) -> tuple[dict[str, _Row], int]:
    if len(buffer) < 8:
        raise LoadError(f"{path}: not a safetensors file: {len(buffer)} bytes are less than its header's length field")
    length = int.from_bytes(buffer[:8], "little")
    if length > _MAX_HEADER or length > len(buffer) - 8:
        raise LoadError(
            f"{path}: the header claims {length} bytes of a file of {len(buffer)}; it is truncated or not safetensors"
        )
    try:
        raw: Any = msgspec.json.decode(bytes(buffer[8 : 8 + length]))
    except msgspec.DecodeError as exc:
        raise LoadError(f"{path}: the header is not JSON: {exc}") from None
    if not isinstance(raw, dict):
        raise LoadError(f"{path}: the header is not a JSON object")
    raw.pop("__metadata__", None)
    rows = {}
    for name, row in raw.items():
        try:
            rows[name] = msgspec.convert(row, _Row)
        except msgspec.ValidationError as exc:
            raise LoadError(f"{path}: the header of tensor {name!r} is malformed: {exc}") from None
    return rows, 8 + length


def _check_row(path: str, name: str, row: _Row, size: int) -> None:
    bits = SAFETENSORS_BITS.get(row.dtype)
    begin, end = row.data_offsets
    if bits is None:
        raise LoadError(f"{path}: tensor {name!r} has unknown dtype {row.dtype!r}")
    if any(d < 0 for d in row.shape):
        raise LoadError(f"{path}: tensor {name!r} has a negative dimension: {row.shape}")
    if not 0 <= begin <= end:
        raise LoadError(f"{path}: tensor {name!r} has impossible offsets [{begin}, {end}]")
    if end > size:
        raise LoadError(
            f"{path}: tensor {name!r} needs bytes {begin} to {end} of the data, but only {size} are there: "
            "the file is truncated"
        )
    if math.prod(row.shape) * bits != (end - begin) * 8:
        raise LoadError(
            f"{path}: tensor {name!r} of shape {row.shape} and dtype {row.dtype} does not fit its {end - begin} bytes"
        )
