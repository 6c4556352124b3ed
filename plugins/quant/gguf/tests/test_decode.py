"""Decoding against the `gguf` package, bit for bit, on random bytes, which include every edge value of every field."""

import gguf
import numpy as np
import pytest
import torch

from turret.contracts import QuantizedWeight
from turret_quant_gguf.blocks import BLOCKS, spec_of
from turret_quant_gguf.decode import decode
from turret_quant_gguf.method import GGUFMethod


def same_bits(ours: torch.Tensor, theirs: np.ndarray) -> bool:
    """Equal in every bit, except that any NaN equals any NaN."""
    a, b = ours.numpy(), theirs
    nan = np.isnan(a) & np.isnan(b)
    return a.shape == b.shape and bool(np.all(nan | (a.view(np.int32) == b.view(np.int32))))


def oracle(name: str, packed: np.ndarray) -> np.ndarray:
    kind = gguf.GGMLQuantizationType[name.upper()]
    with np.errstate(all="ignore"):
        return np.asarray(gguf.quants.dequantize(packed, kind), dtype=np.float32).reshape(packed.shape[0], -1)


def packed_rows(name: str, rows: int, blocks: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (rows, blocks * BLOCKS[name].size), dtype=np.uint8)


@pytest.mark.parametrize("name", BLOCKS)
def test_random_bytes_decode_as_the_gguf_package(name: str) -> None:
    packed = packed_rows(name, 37, 11, np.random.default_rng(7))
    assert same_bits(decode(BLOCKS[name], torch.from_numpy(packed)), oracle(name, packed))


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF, 0x7C, 0x3C])
def test_edge_bytes_decode_as_the_gguf_package(name: str, byte: int) -> None:
    """Zeros, all ones, infinities, NaNs and the largest and smallest scales, in every field at once and one by one."""
    size = BLOCKS[name].size
    packed = np.full((size + 1, size), byte, dtype=np.uint8)
    packed[np.arange(size), np.arange(size)] ^= 0x5A
    assert same_bits(decode(BLOCKS[name], torch.from_numpy(packed)), oracle(name, packed))


@pytest.mark.parametrize("name", BLOCKS)
def test_the_block_table_agrees_with_the_gguf_package(name: str) -> None:
    values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]
    assert (BLOCKS[name].values, BLOCKS[name].size) == (values, size)


def test_many_rows_are_decoded_in_parts_and_agree() -> None:
    packed = packed_rows("q4_1", 70_000, 4, np.random.default_rng(1))
    assert same_bits(decode(BLOCKS["q4_1"], torch.from_numpy(packed)), oracle("q4_1", packed))


def test_dequantize_checks_the_shape() -> None:
    packed = torch.zeros((2, 20), dtype=torch.uint8)
    weight = QuantizedWeight(spec_of("q4_1"), 2, 64, {"weight": packed})
    with pytest.raises(Exception, match=r"decodes to \(2, 32\), expected \(2, 64\)"):
        GGUFMethod().dequantize(weight)
