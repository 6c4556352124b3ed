"""The GGUF header reader against the format's own package, and against files that lie."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from turret.checkpoint import GGML_TYPES, locate_demo, open_gguf
from turret.checkpoint.gguf_header import GgufArray, GgufFile
from turret.errors import LoadError


def same_as_oracle(path: Path) -> None:
    ours, oracle = open_gguf(path), gguf.GGUFReader(path)
    keys = [k for k in oracle.fields if not k.startswith("GGUF.")]
    assert list(ours.metadata) == keys
    for key in keys:
        expected = oracle.fields[key].contents()
        value = ours.metadata[key]
        if isinstance(value, GgufArray):
            strings = value.item_type == 8
            assert (ours.strings(key) if strings else ours.numbers(key)) == list(expected), key
        else:
            assert value == expected, key
    assert list(ours.tensors) == [t.name for t in oracle.tensors]
    for tensor in oracle.tensors:
        info = ours.tensors[tensor.name]
        assert info.type.id == tensor.tensor_type.value
        assert info.shape == tuple(int(n) for n in tensor.shape[::-1])
        assert bytes(info.data) == tensor.data.tobytes()


def test_type_table_is_the_format_packages_own() -> None:
    oracle = {t.value: (t.name, *size) for t, size in gguf.GGML_QUANT_SIZES.items()}
    assert {i: (t.name, t.block, t.block_bytes) for i, t in GGML_TYPES.items()} == oracle


@pytest.mark.model
def test_demo_reads_as_the_oracle_reads_it() -> None:
    same_as_oracle(locate_demo())


def test_every_value_type_reads_as_the_oracle_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "all.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -5)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 4_000_000_000)
    writer.add_int32("a.i32", -2_000_000_000)
    writer.add_uint64("a.u64", 2**63 + 1)
    writer.add_int64("a.i64", -(2**62))
    writer.add_float32("a.f32", 0.1)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.str", "naïve 🎈")
    writer.add_array("a.strs", ["", "a", "日本"])
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.floats", [0.5, -1.25])
    writer.add_array("a.bools", [True, False])
    for kind in (gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q6_K, gguf.GGMLQuantizationType.BF16):
        block, size = gguf.GGML_QUANT_SIZES[kind]
        raw = np.random.default_rng(0).integers(0, 255, (3, 512 // block * size), dtype=np.uint8)
        writer.add_tensor(f"t.{kind.name}", raw, raw_dtype=kind)
    writer.add_tensor("t.f32", np.ones((2, 3, 5), np.float32))
    writer.add_tensor("t.f16", np.ones(7, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    same_as_oracle(path)


@pytest.fixture
def small(write_gguf) -> Path:
    tensors = {"a.weight": np.ones((4, 8), np.float32), "b.weight": np.arange(32, dtype=np.float32)}
    return write_gguf("llama", {"x.number": 3, "x.names": ["one", "two"], "x.text": "hello"}, tensors)


def test_file_cut_inside_a_tensor_names_file_and_tensor(small: Path) -> None:
    small.write_bytes(small.read_bytes()[:-40])
    with pytest.raises(LoadError, match=r"m\.gguf: tensor 'b\.weight' needs bytes .* truncated"):
        open_gguf(small)


def test_file_cut_anywhere_is_a_load_error(small: Path) -> None:
    whole = small.read_bytes()
    for end in range(len(whole) - 32):
        small.write_bytes(whole[:end])
        with pytest.raises(LoadError, match=r"m.gguf"):
            open_gguf(small)


def read_everything(file: GgufFile) -> None:
    for key, value in file.metadata.items():
        if isinstance(value, GgufArray):
            _ = file.strings(key) if value.item_type == 8 else file.numbers(key)
    for info in file.tensors.values():
        bytes(info.data)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6))
@example([(131, 128)])  # a string of 2**63 bytes
def test_changed_bytes_give_a_load_error_or_a_readable_file(small: Path, changes: list[tuple[int, int]]) -> None:
    raw = bytearray(small.read_bytes())
    for at, value in changes:
        raw[at % len(raw)] = value
    path = small.with_name("changed.gguf")
    path.write_bytes(raw)
    try:
        read_everything(open_gguf(path))
    except LoadError as exc:
        assert "changed.gguf" in str(exc)


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (lambda raw: b"GGML" + raw[4:], "not a GGUF file"),
        (lambda raw: raw[:4] + struct.pack(">I", 3) + raw[8:], "big-endian"),
        (lambda raw: raw[:4] + struct.pack("<I", 1) + raw[8:], "version 1"),
        (lambda raw: raw[:8] + struct.pack("<Q", 2**60) + raw[16:], "claims .* tensors"),
        (lambda raw: raw[:16] + struct.pack("<Q", 2**60) + raw[24:], "claims .* metadata"),
        (lambda raw: raw[:24] + struct.pack("<Q", 2**63) + raw[32:], "claims a string"),
        (lambda raw: b"", "empty"),
    ],
)
def test_lies_in_the_preamble(small: Path, patch, message: str) -> None:
    small.write_bytes(patch(small.read_bytes()))
    with pytest.raises(LoadError, match=message):
        open_gguf(small)


def replaced(raw: bytes, old: bytes, new: bytes) -> bytes:
    assert raw.count(old) == 1
    return raw.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # name, number of dimensions, dimensions, type, offset of tensor a.weight
        (b"a.weight" + struct.pack("<I", 2), b"a.weight" + struct.pack("<I", 9), "'a.weight' claims 9 dimensions"),
        (b"a.weight", b"b.weight", "'b.weight' occurs twice"),
        (struct.pack("<QQI", 8, 4, 0), struct.pack("<QQI", 8, 4, 99), "'a.weight' has unknown ggml type 99"),
        (struct.pack("<QQI", 8, 4, 0), struct.pack("<QQI", 8, 4, 2), "'a.weight' has rows of 8 values"),
        (struct.pack("<QQI", 8, 4, 0), struct.pack("<QQI", 8, 2**61, 0), "'a.weight' needs bytes"),
        (struct.pack("<QIQ", 32, 0, 128), struct.pack("<QIQ", 32, 0, 129), "'b.weight' lies at offset 129"),
        (b"x.number" + struct.pack("<I", 4), b"x.number" + struct.pack("<I", 77), "x.number has unknown value type 77"),
        (b"\x03\0\0\0\0\0\0\0two", b"\x03\0\0\0\0\0\0\0t\xffo", "item 1 of metadata x.names is not UTF-8"),
    ],
)
def test_lies_in_the_tables(small: Path, old: bytes, new: bytes, message: str) -> None:
    small.write_bytes(replaced(small.read_bytes(), old, new))
    with pytest.raises(LoadError, match=message):
        read_everything(open_gguf(small))


def test_missing_file_is_a_load_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"none.gguf"):
        open_gguf(tmp_path / "none.gguf")
