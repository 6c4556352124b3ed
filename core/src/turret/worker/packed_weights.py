"""A model's packed weights taken from the store, or put there.

Owns: what a stored model is keyed by, and the way between layers and entries. Knows no file format.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from turret.nn import LayerFactory, StoredPiece
from turret.worker.setup import ModelSource
from turret.worker.weight_store import Entry, StoreEntry, WeightStore, cache_directory

__all__ = ["PackedWeights", "packed_weights"]

logger = logging.getLogger(__name__)

WORTH_BYTES = 16 << 20
"""Below it packing takes no time worth a file."""
_SAMPLE = 64 << 10


class PackedWeights:
    """The stored form of one model for one set of kernels."""

    def __init__(self, store: WeightStore, key: str) -> None:
        self._store = store
        self._key = key

    def restore(self, factory: LayerFactory) -> set[str]:
        """Fill the layers that are stored; the targets that need no tensors any more."""
        file = self._store.open(self._key)
        if file is None:
            return set()
        began, restored, size = time.perf_counter(), set(), 0
        try:
            layers: dict[str, list[Entry]] = {}
            for entry in file.entries:
                layers.setdefault(entry.name, []).append(entry)
            for target, entries in layers.items():
                pieces = [StoredPiece.decode(entry.about) for entry in entries]
                memories = factory.restore(target, pieces)
                if not all(file.read_into(*pair) for pair in zip(entries, memories, strict=True)):
                    raise ValueError(f"{target} is not what was saved")
                factory.restored(target, pieces)
                restored.add(target)
                size += sum(entry.size for entry in entries)
        except (ValueError, msgspec.DecodeError) as error:
            logger.warning("%s is damaged (%s): packing again", file.path, error)
            file.discard()
        finally:
            file.close()
        logger.info("packed weights read from %s: %d layers, %d MiB in %.0f ms", file.path, len(restored), size >> 20,
                    (time.perf_counter() - began) * 1e3)
        return restored

    def save(self, factory: LayerFactory) -> None:
        """Write what the layers hold, on a thread of its own: a start does not wait for a disk."""
        entries = [StoreEntry(target, piece.encode(), data) for target, piece, data in factory.stored()]
        if sum(entry.data.nbytes for entry in entries) >= WORTH_BYTES:
            threading.Thread(target=self._write, args=(entries,), name="turret-packed", daemon=True).start()

    def _write(self, entries: Sequence[StoreEntry]) -> None:
        began = time.perf_counter()
        try:
            size = self._store.save(self._key, entries)
        except OSError as error:
            logger.warning("packed weights are not kept for the next start: %s", error)
            return
        logger.info("packed weights kept in %s: %d MiB in %.1f s", self._store.directory, size >> 20,
                    time.perf_counter() - began)


def packed_weights(source: ModelSource, factory: LayerFactory) -> PackedWeights | None:
    """The stored form of this source, or None where nothing is to be kept: switched off, dummy weights, kernels that
    keep nothing, no place to write."""
    layouts, directory = factory.layouts, cache_directory()
    if not source.keep_packed or source.load_format == "dummy" or not layouts or directory is None:
        return None
    try:
        files = [_file_identity(Path(file)) for file in source.checkpoint.weight_files]
    except OSError:
        return None
    if not files:
        return None
    parts = {"files": files, "dtype": source.dtype, "layouts": layouts, "turret": _version(),
             "config": _digest(source.config)}
    return PackedWeights(WeightStore(directory), json.dumps(parts, sort_keys=True))


def _file_identity(path: Path) -> list[Any]:
    """Size, time and a hash of both ends: enough to notice another file, without reading gigabytes."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        ends = hashlib.sha256(file.read(_SAMPLE))
        file.seek(max(0, status.st_size - _SAMPLE))
        ends.update(file.read(_SAMPLE))
    return [str(path.resolve()), status.st_size, status.st_mtime_ns, ends.hexdigest()]


def _digest(config: Any) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()


def _version() -> str:
    try:
        return version("turret")
    except PackageNotFoundError:
        return "unknown"
