"""Packed weights on disk: read back whole, or not used at all."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny import TinyArchitecture, stored_source, write_weights

from turret.nn import OpTable
from turret.worker import packed_weights
from turret.worker.loader import LoadedModel, LoadTarget, load_model
from turret.worker.setup import ModelSource, WorkerParts
from turret.worker.weight_store import StoreEntry, WeightStore, cache_directory
from turret_platform_cpu.attention import CPUAttention
from turret_platform_cpu.platform import CPUPlatform

native = pytest.mark.skipif(CPUPlatform().graphs() is None, reason="the native library was not built")
DATA = [np.arange(n, dtype=np.uint8) for n in (5000, 1, 4096)]
ENTRIES = [StoreEntry(f"layer {i}", bytes([i]), memoryview(data)) for i, data in enumerate(DATA)]


def read(store: WeightStore, key: str = "key") -> list[bytes] | None:
    file = store.open(key)
    if file is None:
        return None
    found = []
    for entry in file.entries:
        memory = memoryview(bytearray(entry.size))
        if not file.read_into(entry, memory):
            found = None
            break
        found.append(bytes(memory))
    file.close()
    return found


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    store = WeightStore(tmp_path / "new" / "folder")
    assert read(store) is None
    size = store.save("key", ENTRIES)
    assert read(store) == [data.tobytes() for data in DATA] and read(store, "other") is None
    (path,) = store.directory.iterdir()
    assert path.stat().st_size == size


@pytest.mark.parametrize("spoil", [
    lambda data: data[:-4096], lambda data: data[:100], lambda data: b"", lambda data: b"something else" * 999,
    lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data[:40] + b"\xff" + data[41:],
    lambda data: data[:8200] + b"\xff" + data[8201:],
])  # fmt: skip
def test_damage_is_noticed_and_mended_by_the_next_save(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    store = WeightStore(tmp_path)
    entries = [StoreEntry("layer", b"about", memoryview(np.full(2 * 4096, 7, dtype=np.uint8)))]
    store.save("key", entries)
    (path,) = tmp_path.iterdir()
    path.write_bytes(spoil(path.read_bytes()))
    assert read(store) is None
    store.save("key", entries)
    assert read(store) == [bytes([7]) * 8192]


def test_a_file_of_another_key_is_not_taken(tmp_path: Path) -> None:
    store = WeightStore(tmp_path)
    store.save("key", ENTRIES)
    (path,) = tmp_path.iterdir()
    path.rename(store._path("other"))
    assert read(store, "other") is None


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    store = WeightStore(tmp_path, limit=62_000)
    for number, key in enumerate("abc"):
        store.save(key, ENTRIES)
        os.utime(store._path(key), (number, number))
    assert read(store, "a") is not None  # and now it is the last one used
    store.save("d", ENTRIES)
    kept = [key for key in "abcd" if store._path(key).exists()]
    assert kept[0] == "a" and kept[-1] == "d" and "b" not in kept
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 62_000


def test_where_files_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TURRET_CACHE_DIR", raising=False)
    assert cache_directory() == tmp_path / "turret" / "packed"
    monkeypatch.setenv("TURRET_CACHE_DIR", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own" / "packed"


def load(source: ModelSource) -> LoadedModel:
    platform = CPUPlatform()
    parts = WorkerParts(platform, CPUAttention(), TinyArchitecture())
    ops = platform.ops()
    assert ops is not None
    return load_model(parts, source, LoadTarget("cpu", OpTable.resolve([ops]), 64))


def held(loaded: LoadedModel) -> dict[tuple[str, int], bytes]:
    return {(target, piece.start): bytes(data) for target, piece, data in loaded.factory.stored()}


@native
def test_a_second_load_reads_what_the_first_packed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TURRET_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(packed_weights, "WORTH_BYTES", 0)
    monkeypatch.setattr(packed_weights.threading.Thread, "start", packed_weights.threading.Thread.run)
    write_weights(tmp_path)
    source = dataclasses.replace(stored_source(tmp_path), keep_packed=True)
    first = load(source)
    expected = held(first)
    assert len(expected) == 4 * 4 + 1
    (file,) = (tmp_path / "cache" / "packed").iterdir()
    monkeypatch.setattr(packed_weights.PackedWeights, "save", None)  # a second load has nothing to save
    second = load(source)
    assert held(second) == expected and second.factory.weight_bytes == first.factory.weight_bytes
    data = bytearray(file.read_bytes())
    data[-5000] ^= 1
    file.write_bytes(data)
    monkeypatch.undo()
    monkeypatch.setenv("TURRET_CACHE_DIR", str(tmp_path / "cache"))
    assert held(load(source)) == expected and not file.exists(), "a damaged file is packed around and thrown away"


@native
def test_other_weights_of_the_same_name_are_packed_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TURRET_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(packed_weights, "WORTH_BYTES", 0)
    monkeypatch.setattr(packed_weights.threading.Thread, "start", packed_weights.threading.Thread.run)
    write_weights(tmp_path)
    source = dataclasses.replace(stored_source(tmp_path), keep_packed=True)
    load(source)
    write_weights(tmp_path, intermediate_size=128)
    changed = dataclasses.replace(stored_source(tmp_path, intermediate_size=128), keep_packed=True)
    assert len(held(load(changed))) == 17
    assert len(list((tmp_path / "cache" / "packed").iterdir())) == 2
