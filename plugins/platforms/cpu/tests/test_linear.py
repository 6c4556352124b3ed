"""Linear kernels: right against float64, and each row the same bits whatever stands beside it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from turret.contracts import LinearCall, LinearQuery, QuantizedWeight
from turret_platform_cpu.linear import ADD_TO, BLOCK_TYPES, ELEMENTS, EXACT, GATE, INT8, STORE, NativeLinear
from turret_platform_cpu.native import BadArgumentError, Native, PackedWeight
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


def rounded(x: Tensor) -> Tensor:
    """Activations as 8 bits and a scale for each 32 of them leave them, in float64."""
    blocks = x.float().unflatten(-1, (-1, 32))
    top = blocks.abs().amax(-1, keepdim=True)
    codes = torch.round(blocks * torch.where(top > 0, torch.div(torch.tensor(127.0), top), 0))
    return (codes.double() * (top / 127).double()).flatten(-2)


@pytest.mark.parametrize("element", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_rounded_activations_multiply_as_their_own_values(
    name: str, element: torch.dtype, level: str, native: Native
) -> None:
    """Codes and rounded activations multiply exactly, so only float32 sums of groups differ from float64."""
    weight = block_weight(name, 100, 512)
    expected = GGUFMethod().dequantize(weight).double()
    packed = NativeLinear(native).pack(weight)
    linear = native.op("tc_linear")
    for rows in ROWS:
        x = activations(rows, 512, element)
        x[0, 64:96] = 0
        got = torch.full((rows, 100), float("nan"))
        at, kind = (x.data_ptr(), 512), ELEMENTS[element]
        linear(packed.handle, *at, got.data_ptr(), 100, rows, 0, kind, 0, 0, INT8, STORE, 0, 0, 0)
        assert error(got, rounded(x) @ expected.T) < 2e-6, f"{rows} rows"


def test_rounded_activations_are_near_the_exact_ones(level: str, native: Native) -> None:
    weight = block_weight("q4_k", 64, 1024)
    x = activations(5, 1024, torch.bfloat16)
    packed = NativeLinear(native).pack(weight)
    exact, int8 = (product(NativeLinear(native, rounds), packed, x) for rounds in (False, True))
    assert not torch.equal(exact, int8)
    assert torch.corrcoef(torch.stack([exact.flatten(), int8.flatten()]).float())[0, 1] > 0.9999


def test_float32_activations_are_never_rounded(native: Native) -> None:
    weight = block_weight("q8_0", 64, 256)
    packed, x = NativeLinear(native).pack(weight), activations(5, 256, torch.float32)
    assert torch.equal(product(NativeLinear(native, True), packed, x), product(NativeLinear(native), packed, x))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stays_so_in_its_row_alone(bad: float, level: str, native: Native) -> None:
    kernel, x = NativeLinear(native, True), activations(3, 256, torch.bfloat16)
    packed = kernel.pack(block_weight("q4_1", 64, 256))
    clean = product(kernel, packed, x)
    x[1, 37] = bad
    got = product(kernel, packed, x)
    assert not got[1].isfinite().any()
    assert torch.equal(got[[0, 2]], clean[[0, 2]])


def test_tiny_activations_lose_nothing_else(level: str, native: Native) -> None:
    """A block of subnormal numbers beside ordinary ones."""
    kernel, x = NativeLinear(native, True), activations(2, 64, torch.bfloat16)
    packed = kernel.pack(block_weight("q8_0", 32, 64))
    x[:, 32:] = 1e-39
    ordinary = x.clone()
    ordinary[:, 32:] = 0
    assert torch.equal(product(kernel, packed, x), product(kernel, packed, ordinary))


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


@pytest.mark.parametrize("way", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("name", [*BLOCK_TYPES, "plain"])
def test_a_row_has_the_same_bits_alone_in_a_batch_and_on_any_number_of_threads(
    name: str, way: str, level: str, native: Native, threads: Callable[[int], None]
) -> None:
    dtype = torch.float32 if way == "float32" else torch.bfloat16
    weight = plain_weight(dtype, 65, 768) if name == "plain" else block_weight(name, 65, 768)
    kernel = NativeLinear(native, way == "int8")
    packed = kernel.pack(weight)
    x = activations(261, 768, dtype)
    threads(1)
    whole = product(kernel, packed, x)
    for count in (1, 2, 3):
        threads(count)
        assert torch.equal(product(kernel, packed, x), whole), f"{count} threads"
        for start, rows in ((0, 1), (1, 2), (3, 7), (10, 31), (41, 32), (73, 33), (106, 1), (107, 154)):
            assert torch.equal(product(kernel, packed, x[start : start + rows]), whole[start : start + rows])


WAYS = [(torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)]
"""Types of activations, and whether they are rounded."""


def fused(
    native: Native,
    packed: PackedWeight,
    tensors: tuple[Tensor, Tensor, Tensor | None],
    int8: bool,
    epilogue: tuple[int, int],
) -> None:
    """A linear of x into out with a bias, an epilogue and its gate, through x's type."""
    x, out, bias = tensors
    at, kind = (0, 0) if bias is None else (bias.data_ptr(), ELEMENTS[bias.dtype]), ELEMENTS[x.dtype]
    native.op("tc_linear")(
        packed.handle, x.data_ptr(), x.stride(0), out.data_ptr(), out.stride(0), x.shape[0],
        at[0], kind, ELEMENTS[out.dtype], at[1], INT8 if int8 else EXACT, *epilogue, kind, 0,
    )  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["q4_1", "q6_k", "plain"])
def test_adding_to_the_output_gives_the_bits_of_a_linear_and_an_addition(
    name: str, way: tuple[torch.dtype, bool], level: str, native: Native
) -> None:
    dtype, int8 = way
    weight = plain_weight(dtype, 75, 256) if name == "plain" else block_weight(name, 75, 256)
    kernel = NativeLinear(native, int8)
    packed, x, bias = kernel.pack(weight), activations(17, 256, dtype), activations(1, 75, torch.float32)[0]
    residual = activations(17, 75, torch.float32)
    expected = residual + product(kernel, packed, x, bias)
    fused(native, packed, (x, residual, bias), int8, (ADD_TO, 0))
    assert torch.equal(residual, expected)


@pytest.mark.parametrize("gate", range(3))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["q4_1", "q6_k", "plain"])
def test_a_gated_linear_gives_the_bits_of_a_linear_and_its_activation(
    name: str, way: tuple[torch.dtype, bool], gate: int, level: str, native: Native
) -> None:
    dtype, int8 = way
    weight = plain_weight(dtype, 192, 256) if name == "plain" else block_weight(name, 192, 256)
    kernel = NativeLinear(native, int8)
    packed, bias = kernel.pack(weight), activations(1, 192, dtype)[0]
    for rows in (1, 7, 40):
        x = activations(rows, 256, dtype)
        whole = product(kernel, packed, x, bias)
        expected, got = (torch.empty(rows, 96, dtype=dtype) for _ in range(2))
        native.op("tc_gated")(expected.data_ptr(), whole.data_ptr(), 96, 192, rows, 96, gate, ELEMENTS[dtype])
        fused(native, packed, (x, got, bias), int8, (GATE, gate))
        assert torch.equal(got, expected)


def test_a_gated_linear_whose_halves_are_no_whole_panels_is_refused(native: Native) -> None:
    packed, x, out = NativeLinear(native).pack(block_weight("q8_0", 96, 64)), torch.ones(2, 64), torch.empty(2, 48)
    with pytest.raises(BadArgumentError, match="out of range"):
        fused(native, packed, (x, out, None), False, (GATE, 0))


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
