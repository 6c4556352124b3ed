"""Reads the header of a GGUF file: metadata and the table of tensors, each bound-checked against the file.

Owns: the container format (versions 2 and 3, little-endian). Knows nothing of architectures or tokenizers.

Arrays in the metadata (vocabularies of a hundred thousand strings) are only measured while reading and decoded when
somebody asks, so that a process that needs weights alone does not pay for them. Every count and offset comes from an
untrusted file: each is checked before it is used, and a fault is a `LoadError` that names the file and what is wrong.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from turret.checkpoint.ggml_types import GGML_TYPES, GgmlType
from turret.checkpoint.mapped import map_file
from turret.errors import LoadError

__all__ = ["GgufArray", "GgufFile", "GgufTensorInfo", "Scalar", "open_gguf"]

Scalar = bool | int | float | str

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    0: struct.Struct("<B"), 1: struct.Struct("<b"), 2: struct.Struct("<H"), 3: struct.Struct("<h"),
    4: struct.Struct("<I"), 5: struct.Struct("<i"), 6: struct.Struct("<f"), 7: struct.Struct("<?"),
    10: struct.Struct("<Q"), 11: struct.Struct("<q"), 12: struct.Struct("<d"),
}  # fmt: skip
_U32, _U64 = _SCALARS[4], _SCALARS[10]
_MAX_DIMS = 4
_MAX_NAME = 1024  # bytes; the specification says 64, writers are laxer


@dataclass(frozen=True, slots=True)
class GgufArray:
    """Where an array of the metadata lies: `count` items of value type `item_type` in bytes `offset` to `end`."""

    item_type: int
    count: int
    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class GgufTensorInfo:
    """One row of the tensor table.

    `shape` has the slowest dimension first (the file lists the fastest first); `data` is the tensor's packed bytes,
    mapped, not copied.
    """

    name: str
    type: GgmlType
    shape: tuple[int, ...]
    data: memoryview


class _Cursor:
    """A position in the header that refuses to leave the file."""

    __slots__ = ("buffer", "path", "pos")

    def __init__(self, buffer: memoryview, path: str) -> None:
        self.buffer, self.path, self.pos = buffer, path, 0

    def fail(self, what: str) -> LoadError:
        return LoadError(f"{self.path}: {what} (at byte {self.pos} of {len(self.buffer)})")

    def read(self, fmt: struct.Struct, what: str) -> int:
        if self.pos + fmt.size > len(self.buffer):
            raise self.fail(f"the file ends inside {what}; it is truncated")
        (value,) = fmt.unpack_from(self.buffer, self.pos)
        self.pos += fmt.size
        return value  # type: ignore[no-any-return]

    def string(self, what: str, limit: int | None = None) -> str:
        length = self.read(_U64, what)
        if length > len(self.buffer) - self.pos or (limit is not None and length > limit):
            raise self.fail(f"{what} claims a string of {length} bytes; the file is truncated or corrupt")
        raw = bytes(self.buffer[self.pos : self.pos + length])
        self.pos += length
        return _decode(raw, self.path, what)

    def skip_array(self, what: str) -> GgufArray:
        item_type = self.read(_U32, what)
        count = self.read(_U64, what)
        start = self.pos
        if item_type == _STRING:
            self._skip_strings(count, what)
        elif item_type in _SCALARS:
            size = count * _SCALARS[item_type].size
            if size > len(self.buffer) - self.pos:
                raise self.fail(f"{what} claims {count} items; the file is truncated or corrupt")
            self.pos += size
        else:
            raise self.fail(f"{what} is an array of unknown item type {item_type}")
        return GgufArray(item_type, count, start, self.pos)

    def _skip_strings(self, count: int, what: str) -> None:
        size = len(self.buffer)
        if count > (size - self.pos) // _U64.size:
            raise self.fail(f"{what} claims {count} strings; the file is truncated or corrupt")
        pos, buffer, unpack = self.pos, self.buffer, _U64.unpack_from
        try:
            for _ in range(count):
                pos += 8 + unpack(buffer, pos)[0]
        except (struct.error, OverflowError):  # past the end, or so far past that no offset holds it
            raise self.fail(f"the file ends inside {what}; it is truncated or corrupt") from None
        if pos > size:
            raise self.fail(f"the file ends inside {what}; it is truncated or corrupt")
        self.pos = pos


@dataclass(frozen=True, slots=True)
class GgufFile:
    """An open GGUF file: `metadata` by key, `tensors` by name in file order, and their bytes.

    Holds a memory map, so it stays in the process that opened it.
    """

    path: str
    metadata: Mapping[str, Scalar | GgufArray]
    tensors: Mapping[str, GgufTensorInfo]
    buffer: memoryview

    def strings(self, key: str) -> list[str] | None:
        """A metadata array of strings; None when the key is absent."""
        array = self.metadata.get(key)
        if array is None:
            return None
        if not isinstance(array, GgufArray) or array.item_type != _STRING:
            raise LoadError(f"{self.path}: metadata {key} must be an array of strings")
        # One copy of the whole array first: slices of bytes are several times cheaper than views of the map.
        out, pos, unpack, raw = [], 0, _U64.unpack_from, bytes(self.buffer[array.offset : array.end])
        try:
            for _ in range(array.count):
                end = pos + 8 + unpack(raw, pos)[0]
                out.append(raw[pos + 8 : end].decode())
                pos = end
        except UnicodeDecodeError as exc:
            raise LoadError(f"{self.path}: item {len(out)} of metadata {key} is not UTF-8: {exc}") from None
        return out

    def numbers(self, key: str) -> list[int] | list[float] | None:
        """A metadata array of numbers; None when the key is absent."""
        array = self.metadata.get(key)
        if array is None:
            return None
        if not isinstance(array, GgufArray) or array.item_type not in _SCALARS:
            raise LoadError(f"{self.path}: metadata {key} must be an array of numbers")
        dtype = np.dtype("<" + _SCALARS[array.item_type].format[1:])
        values: list[int] | list[float] = np.frombuffer(self.buffer, dtype, array.count, array.offset).tolist()
        return values

    def floats(self, name: str) -> list[float] | None:
        """A small F32 tensor as numbers; None when there is none of that name."""
        info = self.tensors.get(name)
        if info is None:
            return None
        if info.type.name != "F32":
            raise LoadError(f"{self.path}: tensor {name!r} must be F32, not {info.type.name}")
        values: list[float] = np.frombuffer(info.data, "<f4").tolist()
        return values


def open_gguf(path: str | Path) -> GgufFile:
    """Map and check a GGUF file. Raises LoadError naming the file and the key or tensor at fault."""
    path = str(path)
    cursor = _Cursor(map_file(path), path)
    tensor_count, kv_count = _read_preamble(cursor)
    metadata = _read_metadata(cursor, kv_count)
    rows = _read_tensor_rows(cursor, tensor_count)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise LoadError(f"{path}: general.alignment must be a power of two, got {alignment!r}")
    start = -(-cursor.pos // alignment) * alignment
    tensors: dict[str, GgufTensorInfo] = {}
    for name, type_id, dims, offset in rows:
        if name in tensors:
            raise LoadError(f"{path}: tensor {name!r} occurs twice in the header")
        tensors[name] = _place(cursor, (name, type_id, dims), start, (offset, alignment))
    return GgufFile(path, metadata, tensors, cursor.buffer)


def _decode(raw: bytes, path: str, what: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise LoadError(f"{path}: {what} is not UTF-8: {exc}") from None


def _read_preamble(cursor: _Cursor) -> tuple[int, int]:
    magic = bytes(cursor.buffer[:4])
    if magic != _MAGIC:
        raise LoadError(f"{cursor.path}: not a GGUF file: it begins with {magic!r} instead of {_MAGIC!r}")
    cursor.pos = 4
    version = cursor.read(_U32, "the version")
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        why = "it is big-endian" if swapped in _VERSIONS else f"it has version {version}"
        raise LoadError(f"{cursor.path}: {why}; turret reads little-endian GGUF of versions 2 and 3: convert it again")
    return cursor.read(_U64, "the tensor count"), cursor.read(_U64, "the metadata count")


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Scalar | GgufArray]:
    if count > (len(cursor.buffer) - cursor.pos) // 13:  # a key, a type and a value take at least 13 bytes
        raise cursor.fail(f"the header claims {count} metadata entries; the file is truncated or corrupt")
    metadata: dict[str, Scalar | GgufArray] = {}
    for i in range(count):
        key = cursor.string(f"the key of metadata entry {i}", 65535)
        if key in metadata:
            raise cursor.fail(f"metadata {key} occurs twice")
        metadata[key] = _read_value(cursor, f"metadata {key}")
    return metadata


def _read_value(cursor: _Cursor, what: str) -> Scalar | GgufArray:
    kind = cursor.read(_U32, what)
    if kind == _STRING:
        return cursor.string(what)
    if kind == _ARRAY:
        return cursor.skip_array(what)
    if kind not in _SCALARS:
        raise cursor.fail(f"{what} has unknown value type {kind}")
    return cursor.read(_SCALARS[kind], what)


def _read_tensor_rows(cursor: _Cursor, count: int) -> list[tuple[str, int, tuple[int, ...], int]]:
    if count > (len(cursor.buffer) - cursor.pos) // 24:  # name length, dimension count, type and offset
        raise cursor.fail(f"the header claims {count} tensors; the file is truncated or corrupt")
    rows = []
    for i in range(count):
        name = cursor.string(f"the name of tensor {i}", _MAX_NAME)
        what = f"the header of tensor {name!r}"
        n_dims = cursor.read(_U32, what)
        if not 1 <= n_dims <= _MAX_DIMS:
            raise cursor.fail(f"tensor {name!r} claims {n_dims} dimensions; between 1 and {_MAX_DIMS} are possible")
        dims = tuple(cursor.read(_U64, what) for _ in range(n_dims))
        rows.append((name, cursor.read(_U32, what), dims[::-1], cursor.read(_U64, what)))
    return rows


def _place(
    cursor: _Cursor, row: tuple[str, int, tuple[int, ...]], start: int, offset_alignment: tuple[int, int]
) -> GgufTensorInfo:
    """Check one row against the file's size; `start` is where tensor data begins."""
    name, type_id, shape = row
    offset, alignment = offset_alignment
    kind = GGML_TYPES.get(type_id)
    if kind is None:
        raise LoadError(f"{cursor.path}: tensor {name!r} has unknown ggml type {type_id}")
    if shape[-1] % kind.block:
        raise LoadError(
            f"{cursor.path}: tensor {name!r} has rows of {shape[-1]} values, no multiple of {kind.block} ({kind.name})"
        )
    if offset % alignment:
        raise LoadError(f"{cursor.path}: tensor {name!r} lies at offset {offset}, not a multiple of {alignment}")
    nbytes = math.prod(shape) // kind.block * kind.block_bytes
    end = start + offset + nbytes
    if end > len(cursor.buffer):
        raise LoadError(
            f"{cursor.path}: tensor {name!r} needs bytes {start + offset} to {end}, but the file ends at "
            f"{len(cursor.buffer)}: it is truncated or corrupt"
        )
    return GgufTensorInfo(name, kind, shape, cursor.buffer[start + offset : end])
