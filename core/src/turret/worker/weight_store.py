"""Packed weights kept on disk, so that a second start reads them instead of packing again.

Owns: the files, their format, checks and eviction. Knows no kernel and no model: entries are bytes under names.

One file for each key: a magic number, the length and the hash of a JSON head, the head, then the entries, each at a
multiple of a page. A file appears whole or not at all (written beside and renamed). What does not check out, because it
is truncated, damaged or somebody else's, is not used: the caller packs again, and the next save replaces it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import xxhash

__all__ = ["Entry", "StoreEntry", "StoredFile", "WeightStore", "cache_directory"]

logger = logging.getLogger(__name__)

_MAGIC = b"turret packed 1\n"
_PREFIX = len(_MAGIC) + 16
_PAGE = 4096
_SUFFIX = ".packed"
LIMIT_BYTES = 32 << 30
"""All files together; the least recently used go first."""
_CHUNK = 64 << 20
_ABANDONED_SECONDS = 3600.0


class Entry(msgspec.Struct, frozen=True):
    """One entry in a file's head: what its owner says of it, and where its bytes lie."""

    name: str
    about: bytes
    offset: int
    size: int
    digest: int


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """One entry to be saved."""

    name: str
    about: bytes
    data: memoryview


class _Head(msgspec.Struct, frozen=True):
    key: str
    entries: list[Entry]


def cache_directory() -> Path | None:
    """Where files are kept: TURRET_CACHE_DIR, else under XDG_CACHE_HOME or ~/.cache; None where there is no home."""
    named = os.environ.get("TURRET_CACHE_DIR")
    if named:
        return Path(named).expanduser() / "packed"
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "turret" / "packed"
    except RuntimeError:
        return None


class StoredFile:
    """An open file of the store. `read_into` fills memory and says whether it is what was saved."""

    def __init__(self, path: Path, fd: int, entries: Sequence[Entry]) -> None:
        self.path = path
        self.entries = entries
        self._fd = fd

    def read_into(self, entry: Entry, memory: memoryview) -> bool:
        """Plain reads: pages of a mapped file would be small ones, and kernels want huge ones."""
        if memory.nbytes != entry.size:
            return False
        done = 0
        while done < entry.size:
            count = os.preadv(self._fd, [memory[done : done + _CHUNK]], entry.offset + done)
            if count <= 0:
                return False
            done += count
        return xxhash.xxh3_64_intdigest(memory) == entry.digest

    def close(self) -> None:
        os.close(self._fd)

    def discard(self) -> None:
        """Delete a file that does not check out."""
        with contextlib.suppress(OSError):
            self.path.unlink()


@dataclass(frozen=True, slots=True)
class WeightStore:
    """Files below one directory, at most `limit` bytes of them."""

    directory: Path
    limit: int = LIMIT_BYTES

    def open(self, key: str) -> StoredFile | None:
        """The file of a key if it is there and its head is sound. Close it after use."""
        path = self._path(key)
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            return None
        found = _head(fd, key)
        if found is None:
            os.close(fd)
            logger.warning("%s is damaged and will be made anew", path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return StoredFile(path, fd, found.entries)

    def save(self, key: str, entries: Sequence[StoreEntry]) -> int:
        """Write a key's file; the bytes written. Raises OSError; what was there before stays until then."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        head, size = _layout(key, entries)
        self._make_room(size)
        fd, name = tempfile.mkstemp(prefix=".new-", dir=self.directory)
        try:
            with os.fdopen(fd, "wb") as file:
                for offset, data in _blocks(head, entries):
                    file.seek(offset)
                    file.write(data)
                file.truncate(size)
            os.replace(name, self._path(key))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        return size

    def _path(self, key: str) -> Path:
        return self.directory / f"{xxhash.xxh3_128_hexdigest(key.encode())}{_SUFFIX}"

    def _make_room(self, size: int) -> None:
        found = []
        for path in [*self.directory.glob(f"*{_SUFFIX}"), *self.directory.glob(".new-*")]:
            with contextlib.suppress(OSError):  # another process may delete it meanwhile
                status = path.stat()
                if path.suffix != _SUFFIX and time.time() - status.st_mtime > _ABANDONED_SECONDS:
                    path.unlink()  # whoever wrote it did not live to rename it
                else:
                    found.append((status.st_mtime, status.st_size, path))
        total = size + sum(bytes_ for _, bytes_, _ in found)
        for _, bytes_, path in sorted(found):
            if total <= self.limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            total -= bytes_


def _head(fd: int, key: str) -> _Head | None:
    prefix = os.pread(fd, _PREFIX, 0)
    if len(prefix) < _PREFIX or not prefix.startswith(_MAGIC):
        return None
    length, digest = (int.from_bytes(prefix[at : at + 8], "little") for at in (len(_MAGIC), len(_MAGIC) + 8))
    data = os.pread(fd, min(length, 1 << 28), _PREFIX)
    if len(data) != length or xxhash.xxh3_64_intdigest(data) != digest:
        return None
    head = msgspec.msgpack.decode(data, type=_Head)
    end = max((entry.offset + entry.size for entry in head.entries), default=0)
    return head if head.key == key and os.fstat(fd).st_size >= end else None


def _layout(key: str, entries: Sequence[StoreEntry]) -> tuple[bytes, int]:
    """The head's bytes, and the file's size. Offsets count from the first page that the head leaves free."""
    digests = [xxhash.xxh3_64_intdigest(entry.data) for entry in entries]
    room = _pages(_PREFIX + sum(len(e.name) + len(e.about) + 64 for e in entries) + len(key) + 64)
    placed, at = [], room
    for entry, digest in zip(entries, digests, strict=True):
        placed.append(Entry(entry.name, entry.about, at, entry.data.nbytes, digest))
        at += _pages(entry.data.nbytes)
    body = msgspec.msgpack.encode(_Head(key, placed))
    head = _MAGIC + len(body).to_bytes(8, "little") + xxhash.xxh3_64_intdigest(body).to_bytes(8, "little") + body
    assert len(head) <= room
    return head, at


def _blocks(head: bytes, entries: Sequence[StoreEntry]) -> Iterator[tuple[int, bytes | memoryview]]:
    yield 0, head
    body = msgspec.msgpack.decode(head[_PREFIX:], type=_Head)
    for entry, place in zip(entries, body.entries, strict=True):
        yield place.offset, entry.data


def _pages(size: int) -> int:
    return (size + _PAGE - 1) // _PAGE * _PAGE
