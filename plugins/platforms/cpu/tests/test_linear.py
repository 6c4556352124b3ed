"""Linear kernels: right against float64, and each row the same bits whatever stands beside it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from turret.contracts import LinearCall, LinearQuery, QuantizedWeight
from turret_platform_cpu.linear import BLOCK_TYPES, NativeLinear
from turret_platform_cpu.native import BadArgumentError, Native
from turret_quant_gguf.blocks import spec_of
from turret_quant_gguf.method import GGUFMethod

SCALES_AT = {
    "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q8_0": (0,), "q2_k": (80, 82), "q3_k": (108,),
    "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,), "iq4_nl": (0,), "iq4_xs": (0,),
}  # fmt: skip
"""Where a block's float16 fields lie; the rest of a block may be any bytes."""

ROWS = (1, 2, 3, 7, 12, 13, 31, 32, 33)
ERROR = {torch.float32: 2e-6, torch.bfloat16: 4e-3}
"""Against float64, relative to the largest output; bfloat16's is the rounding of the output."""


def block_weight(name: str, out_features: int, in_features: int, seed: int = 0) -> QuantizedWeight:
    """Random blocks with scales of ordinary size."""
    _, values, size = BLOCK_TYPES[name]
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (out_features, in_features // values, size), dtype=np.uint8)
    for at in SCALES_AT[name]:
        scale = rng.uniform(0.002, 0.01, blocks.shape[:2]).astype(np.float16)
        blocks[:, :, at : at + 2] = scale[..., None].view(np.uint8)
    packed = torch.from_numpy(blocks.reshape(out_features, -1).copy())
    return QuantizedWeight(spec_of(name), out_features, in_features, {"weight": packed})


def plain_weight(dtype: torch.dtype, out_features: int, in_features: int) -> QuantizedWeight:
    rows = torch.randn(out_features, in_features, generator=torch.Generator().manual_seed(3)).to(dtype)
    return QuantizedWeight(None, out_features, in_features, {"weight": rows})


def activations(rows: int, in_features: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(rows, in_features, generator=torch.Generator().manual_seed(rows)).to(dtype)


def product(kernel: NativeLinear, packed: object, x: Tensor, bias: Tensor | None = None) -> Tensor:
    out = torch.full((x.shape[0], packed.out_features), float("nan"), dtype=x.dtype)
    kernel.apply(LinearCall(out, x, packed, bias))
    return out


def error(got: Tensor, expected: Tensor) -> float:
    return float((got.double() - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_blocks_multiply_as_their_dequantized_weight(name: str, dtype: torch.dtype, level: str, native: Native) -> None:
    weight = block_weight(name, 100, 512)
    expected = GGUFMethod().dequantize(weight).double()
    kernel = NativeLinear(native)
    packed = kernel.pack(weight)
    for rows in ROWS:
        x = activations(rows, 512, dtype)
        got = product(kernel, packed, x)
        assert error(got, x.double() @ expected.T) < ERROR[dtype], f"{rows} rows"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (33, 40), (96, 255), (130, 576), (31, 513), (64, 1024)])
def test_plain_weights_of_ragged_shapes_with_bias(
    shape: tuple[int, int], dtype: torch.dtype, level: str, native: Native
) -> None:
    weight = plain_weight(dtype, *shape)
    kernel = NativeLinear(native)
    packed = kernel.pack(weight)
    bias = torch.randn(shape[0], generator=torch.Generator().manual_seed(5)).to(dtype)
    for rows in ROWS:
        x = activations(rows, shape[1], dtype)
        expected = x.double() @ weight.params["weight"].double().T + bias.double()
        assert error(product(kernel, packed, x, bias), expected) < ERROR[dtype], f"{rows} rows"


def test_a_prompt_of_512_rows(level: str, native: Native) -> None:
    """More rows than a chunk holds."""
    weight = block_weight("q4_1", 200, 1536)
    kernel = NativeLinear(native)
    x = activations(512, 1536, torch.bfloat16)
    expected = x.double() @ GGUFMethod().dequantize(weight).double().T
    assert error(product(kernel, kernel.pack(weight), x), expected) < ERROR[torch.bfloat16]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [*BLOCK_TYPES, "plain"])
def test_a_row_has_the_same_bits_alone_in_a_batch_and_on_any_number_of_threads(
    name: str, dtype: torch.dtype, level: str, native: Native, threads: Callable[[int], None]
) -> None:
    weight = plain_weight(dtype, 65, 768) if name == "plain" else block_weight(name, 65, 768)
    kernel = NativeLinear(native)
    packed = kernel.pack(weight)
    x = activations(261, 768, dtype)
    threads(1)
    whole = product(kernel, packed, x)
    for count in (1, 2, 3):
        threads(count)
        assert torch.equal(product(kernel, packed, x), whole), f"{count} threads"
        for start, rows in ((0, 1), (1, 2), (3, 7), (10, 31), (41, 32), (73, 33), (106, 1), (107, 154)):
            assert torch.equal(product(kernel, packed, x[start : start + rows]), whole[start : start + rows])


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_rows_are_the_dequantized_rows_exactly(name: str, level: str, native: Native) -> None:
    weight = block_weight(name, 70, 512)
    kernel = NativeLinear(native)
    packed = kernel.pack(weight)
    ids = torch.tensor([0, 69, 33, 33, 31, 32])
    expected = GGUFMethod().dequantize(weight)[ids]
    for dtype in (torch.float32, torch.bfloat16):
        out = torch.empty(len(ids), 512, dtype=dtype)
        kernel.rows(packed, ids, out)
        assert torch.equal(out, expected.to(dtype))


def test_rows_beyond_the_table_are_refused(native: Native) -> None:
    kernel = NativeLinear(native)
    packed = kernel.pack(block_weight("q8_0", 70, 64))
    for bad in (70, -1):
        with pytest.raises(BadArgumentError, match="out of range"):
            kernel.rows(packed, torch.tensor([0, bad]), torch.empty(2, 64))


def test_output_may_be_a_column_slice_and_wider_than_the_activations(level: str, native: Native) -> None:
    weight = block_weight("q4_k", 50, 256)
    kernel = NativeLinear(native)
    packed = kernel.pack(weight)
    x = activations(9, 256, torch.bfloat16)
    wide = torch.zeros(9, 60)
    kernel.apply(LinearCall(wide[:, 5:55], x, packed, None))
    expected = x.double() @ GGUFMethod().dequantize(weight).double().T
    assert error(wide[:, 5:55], expected) < 1e-5
    assert not wide[:, :5].any() and not wide[:, 55:].any()


def test_activations_may_be_a_column_slice(level: str, native: Native) -> None:
    weight = block_weight("q4_0", 40, 256)
    kernel = NativeLinear(native)
    packed = kernel.pack(weight)
    wide = activations(6, 300, torch.bfloat16)
    assert torch.equal(product(kernel, packed, wide[:, 10:266]), product(kernel, packed, wide[:, 10:266].contiguous()))


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_packed_weights_stay_small(name: str, native: Native) -> None:
    """As many bits as in the file, except that codes of two and three bits take four."""
    packed = NativeLinear(native).pack(block_weight(name, 64, 1024))
    bits = packed.bytes * 8 / (64 * 1024)
    assert bits <= max(4.5, spec_of(name).bits) + (2.6 if name == "q2_k" else 0.2)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (LinearQuery(None, 8, 8, "float16", "cpu"), "float16"),
        (LinearQuery(None, 8, 8, "float32", "cuda:0"), "cuda"),
        (LinearQuery(spec_of("q4_k"), 8, 100, "float32", "cpu"), "100 values"),
    ],
)
def test_what_is_not_served_is_refused_with_a_reason(query: LinearQuery, reason: str, native: Native) -> None:
    verdict = NativeLinear(native).supports(query)
    assert not verdict.ok and reason in " ".join(verdict.reasons)


def test_packing_a_weight_of_the_wrong_size_is_refused(native: Native) -> None:
    weight = block_weight("q4_0", 8, 64)
    weight.params["weight"] = weight.params["weight"][:, :-1]
    with pytest.raises(ValueError, match=r"q4_0 rows are .* expected \(8, 36\)"):
        NativeLinear(native).pack(weight)
