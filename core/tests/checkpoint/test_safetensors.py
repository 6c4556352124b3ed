"""Safetensors reading against the format's own package, and against broken files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from turret.checkpoint import SAFETENSORS_BITS, Checkpoint, CheckpointKind, iter_safetensors, open_safetensors
from turret.errors import LoadError


def write(path: Path, header: dict[str, Any], data: bytes) -> Path:
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return path


def checkpoint(directory: Path, *names: str) -> Checkpoint:
    files = tuple(str(directory / name) for name in names)
    return Checkpoint(
        reference="x", name="x", kind=CheckpointKind.SAFETENSORS, path=str(directory), config={}, weight_files=files
    )


def test_every_dtype_gives_the_stored_bytes(tmp_path: Path) -> None:
    dtypes = {
        "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
        "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
        "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "U16": torch.uint16, "U32": torch.uint32,
        "U64": torch.uint64, "F8_E8M0": torch.float8_e8m0fnu,
    }  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    tensors = {
        f"t.{name}": torch.randint(0, 2, (3, 8 * SAFETENSORS_BITS[name] // 8), dtype=torch.uint8, generator=generator)
        .view(dtype)
        .contiguous()
        for name, dtype in dtypes.items()
    }
    path = tmp_path / "m.safetensors"
    save_file(tensors, path)
    views = open_safetensors(path)
    assert views.keys() == tensors.keys()
    for name, tensor in tensors.items():
        view = views[name]
        assert f"t.{view.dtype}" == name
        assert view.shape == tuple(tensor.shape)
        assert bytes(view.data) == tensor.view(torch.uint8).numpy().tobytes()


def test_scalars_and_empty_tensors(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 4), "after": torch.ones(2)}, path)
    views = open_safetensors(path)
    assert views["scalar"].shape == ()
    assert views["empty"].shape == (0, 4)
    assert len(views["empty"].data) == 0


def test_views_are_mapped_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"a": torch.zeros(1000), "b": torch.zeros(1000)}, path)
    first, second = iter_safetensors(checkpoint(tmp_path, "m.safetensors"))
    assert first.data.obj is second.data.obj  # one memory map behind both
    assert first.data.readonly


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=5), st.integers(0, 40))
def test_damage_is_seen_as_the_format_package_sees_it(
    tmp_path: Path, changes: list[tuple[int, int]], cut: int
) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"a.weight": torch.arange(12.0).view(3, 4), "b": torch.ones(5, dtype=torch.bfloat16)}, path)
    raw = bytearray(path.read_bytes())
    for at, value in changes:
        raw[at % len(raw)] = value
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(raw[: len(raw) - cut])
    try:
        ours = {name: (view.shape, view.dtype) for name, view in open_safetensors(damaged).items()}
    except LoadError as exc:
        assert "damaged.safetensors" in str(exc)
        ours = None
    try:
        with safe_open(damaged, framework="np") as oracle:
            slices = {name: oracle.get_slice(name) for name in list(oracle.keys())}
            theirs = {name: (tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
    except (SafetensorError, OSError):
        theirs = None
    assert ours == theirs


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (GOOD | {"dtype": "F33"}, "'w' has unknown dtype 'F33'"),
        (GOOD | {"shape": [3]}, r"'w' of shape \[3\] and dtype F32 does not fit its 8 bytes"),
        (GOOD | {"shape": [-2]}, "'w' has a negative dimension"),
        (GOOD | {"data_offsets": [0, 800], "shape": [200]}, "'w' needs bytes 0 to 800 .* truncated"),
        (GOOD | {"data_offsets": [8, 0]}, "'w' has impossible offsets"),
        (GOOD | {"data_offsets": [-8, 0]}, "'w' has impossible offsets"),
        ({"dtype": "F32", "shape": [2]}, "header of tensor 'w' is malformed"),
        (GOOD | {"shape": "two"}, "header of tensor 'w' is malformed"),
        (GOOD | {"data_offsets": [4, 8], "shape": [1]}, "'w' begins at byte 4"),
        (GOOD | {"data_offsets": [0, 4], "shape": [1]}, "4 bytes after the last tensor"),
    ],
)
def test_lies_about_a_tensor_name_file_and_tensor(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "m.safetensors", {"w": row}, bytes(8))
    with pytest.raises(LoadError, match=rf"m\.safetensors: .*{message}"):
        open_safetensors(path)


def test_headers_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for raw, message in (
        (b"", "empty"),
        (b"abc", "not a safetensors file"),
        (struct.pack("<Q", 2**62) + b"{}", "claims"),
        (struct.pack("<Q", 5) + b"hello", "not JSON"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
    ):
        path.write_bytes(raw)
        with pytest.raises(LoadError, match=message):
            open_safetensors(path)


def sharded(directory: Path) -> dict[str, str]:
    save_file({"a": torch.ones(2)}, directory / "model-00001-of-00002.safetensors")
    save_file({"b": torch.ones(3)}, directory / "model-00002-of-00002.safetensors")
    return {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}


def test_shards_come_in_order(tmp_path: Path) -> None:
    names = sharded(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    assert [v.name for v in iter_safetensors(checkpoint(tmp_path, *names.values()))] == ["a", "b"]


def test_index_that_names_a_tensor_its_file_lacks(tmp_path: Path) -> None:
    names = sharded(tmp_path) | {"c": "model-00002-of-00002.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with pytest.raises(LoadError, match=r"00002-of-00002\.safetensors: tensor 'c' is missing although"):
        list(iter_safetensors(checkpoint(tmp_path, *dict.fromkeys(names.values()))))


def test_tensor_in_two_files(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "x.safetensors")
    save_file({"a": torch.ones(2)}, tmp_path / "y.safetensors")
    with pytest.raises(LoadError, match=r"y\.safetensors: tensor 'a' is already in .*x\.safetensors"):
        list(iter_safetensors(checkpoint(tmp_path, "x.safetensors", "y.safetensors")))
