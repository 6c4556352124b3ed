"""Canonical codes and float16 weights: right against float64 over ragged sizes, on every ISA level."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from turret.contracts import LinearCall, LinearQuery, QuantizedWeight, QuantSpec
from turret.nn.canonical import dequantize
from turret.testing.canonical import CANONICAL_SPECS, canonical_weight
from turret_platform_cpu.linear import ELEMENTS, INT8, STORE, NativeLinear
from turret_platform_cpu.native import BadArgumentError, Native, PackedWeight

INTEGERS = [name for name, spec in CANONICAL_SPECS.items() if not spec.weight_type.startswith("fp8")]
"""Formats that meet rounded activations; 8-bit floats are no bytes to multiply."""

SHAPES = [(100, 512), (33, 200), (64, 96), (5, 576)]
ROWS = (1, 2, 5, 13, 33)
ERROR = 2e-6
"""Against float64, relative to the largest output, which is float32: the rounding of its sums."""


def activations(rows: int, in_features: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(rows, in_features, generator=torch.Generator().manual_seed(rows)).to(dtype)


def product(kernel: NativeLinear, packed: PackedWeight, x: Tensor) -> Tensor:
    out = torch.full((x.shape[0], packed.out_features), float("nan"))
    kernel.apply(LinearCall(out, x, packed))
    return out


def error(got: Tensor, expected: Tensor) -> float:
    return float((got.double() - expected).abs().max() / expected.abs().max())


def rounded(x: Tensor, block: int = 32) -> Tensor:
    """Activations as 8 bits and a scale for each block of them leave them, in float64."""
    padded = torch.nn.functional.pad(x.float(), (0, -x.shape[1] % block))
    blocks = padded.unflatten(-1, (-1, block))
    top = blocks.abs().amax(-1, keepdim=True)
    codes = torch.round(blocks * torch.where(top > 0, torch.div(torch.tensor(127.0), top), 0))
    return (codes.double() * (top / 127).double()).flatten(-2)[:, : x.shape[1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CANONICAL_SPECS)
def test_codes_multiply_as_their_dequantized_weight(name: str, dtype: torch.dtype, level: str, native: Native) -> None:
    kernel = NativeLinear(native)
    for shape in SHAPES:
        weight = canonical_weight(CANONICAL_SPECS[name], *shape)
        expected, packed = dequantize(weight).double(), kernel.pack(weight)
        for rows in ROWS:
            x = activations(rows, shape[1], dtype)
            got = product(kernel, packed, x)
            assert error(got, x.double() @ expected.T) < ERROR, f"{shape}, {rows} rows"


@pytest.mark.parametrize("element", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", INTEGERS)
def test_rounded_activations_multiply_as_their_own_values(
    name: str, element: torch.dtype, level: str, native: Native
) -> None:
    """An act-ordered weight rounds activations in its own order."""
    linear = native.op("tc_linear")
    for shape in SHAPES:
        weight = canonical_weight(CANONICAL_SPECS[name], *shape)
        expected, packed = dequantize(weight).double(), NativeLinear(native).pack(weight)
        order = weight.params.get("order", torch.arange(shape[1])).long()
        for rows in ROWS:
            x = activations(rows, shape[1], element)
            got = torch.full((rows, shape[0]), float("nan"))
            at, kind = (x.data_ptr(), shape[1]), ELEMENTS[element]
            linear(packed.handle, *at, got.data_ptr(), shape[0], rows, 0, kind, 0, 0, INT8, STORE, 0, 0, 0)
            seen = rounded(x[:, order], shape[1] if name == "w8a8" else 32)
            assert error(got, seen @ expected[:, order].T) < ERROR, f"{shape}, {rows} rows"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stays_so_in_its_row_alone(bad: float, level: str, native: Native) -> None:
    kernel, x = NativeLinear(native, True), activations(3, 200, torch.bfloat16)
    packed = kernel.pack(canonical_weight(CANONICAL_SPECS["w8a8"], 40, 200))
    clean = product(kernel, packed, x)
    x[1, 37] = bad
    got = product(kernel, packed, x)
    assert not got[1].isfinite().any()
    assert torch.equal(got[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("name", CANONICAL_SPECS)
def test_rows_are_the_dequantized_rows_exactly(name: str, level: str, native: Native) -> None:
    kernel = NativeLinear(native)
    for shape in SHAPES:
        weight = canonical_weight(CANONICAL_SPECS[name], *shape)
        packed, ids = kernel.pack(weight), torch.tensor([0, shape[0] - 1, 3, 3])
        for dtype in (torch.float32, torch.bfloat16):
            out = torch.empty(len(ids), shape[1], dtype=dtype)
            kernel.rows(packed, ids, out)
            assert torch.equal(out, dequantize(weight)[ids].to(dtype)), f"{shape}"


@pytest.mark.parametrize("way", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("name", [*CANONICAL_SPECS, "float16"])
def test_a_row_has_the_same_bits_alone_in_a_batch_and_on_any_number_of_threads(
    name: str, way: str, level: str, native: Native, threads: Callable[[int], None]
) -> None:
    kernel = NativeLinear(native, way == "int8")
    shape = 65, 200
    packed = kernel.pack(half_weight(*shape) if name == "float16" else canonical_weight(CANONICAL_SPECS[name], *shape))
    x = activations(50, 200, torch.float32 if way == "float32" else torch.bfloat16)
    threads(1)
    whole = product(kernel, packed, x)
    for count in (1, 2, 3):
        threads(count)
        for start, rows in ((0, 50), (0, 1), (1, 2), (3, 7), (10, 31)):
            assert torch.equal(product(kernel, packed, x[start : start + rows]), whole[start : start + rows])


@pytest.mark.parametrize("name", CANONICAL_SPECS)
def test_packed_codes_stay_small(name: str, native: Native) -> None:
    """Their own bits, a scale for each group or for 256 values, and a zero point."""
    spec = CANONICAL_SPECS[name]
    packed = NativeLinear(native).pack(canonical_weight(spec, 256, 1024))
    scale_bits = 32 if spec.scale_type in ("float32", "fp8_e4m3") else 16
    values = min(256, (spec.group_size or 256) & -(spec.group_size or 256))
    extra = 32 / 256 + 8 / 16 if name == "nvfp4" else (scale_bits + 16 * spec.zero_points) / values
    assert packed.bytes * 8 / (256 * 1024) <= spec.bits + extra + 0.2


def half_weight(out_features: int, in_features: int) -> QuantizedWeight:
    """Float16 numbers down to the subnormal ones."""
    generator = torch.Generator().manual_seed(9)
    rows = torch.randn(out_features, in_features, generator=generator).to(torch.float16)
    rows[:, ::3] *= 1e-6
    return QuantizedWeight(None, out_features, in_features, {"weight": rows})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (33, 41), (130, 576), (64, 1024)])
def test_float16_weights_stay_what_they_are(
    shape: tuple[int, int], dtype: torch.dtype, level: str, native: Native
) -> None:
    kernel, weight = NativeLinear(native), half_weight(*shape)
    packed = kernel.pack(weight)
    assert packed.bytes == 2 * (-(-shape[0] // 32) * 32) * (-(-shape[1] // 2) * 2)
    for rows in ROWS:
        x = activations(rows, shape[1], dtype)
        assert error(product(kernel, packed, x), x.double() @ weight.params["weight"].double().T) < ERROR
    looked_up = torch.empty(2, shape[1])
    kernel.rows(packed, torch.tensor([0, shape[0] - 1]), looked_up)
    assert torch.equal(looked_up, weight.params["weight"][[0, -1]].float())


@pytest.mark.parametrize("name", CANONICAL_SPECS)
def test_every_format_is_served(name: str, native: Native) -> None:
    for dtype in ("float32", "bfloat16"):
        assert NativeLinear(native).supports(LinearQuery(CANONICAL_SPECS[name], 64, 200, dtype, "cpu")).ok


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (QuantSpec("int3", 3, 32, scale_type="float16"), "int3 in canonical packing"),
        (QuantSpec("int4", 4, 32, packing="marlin"), "int4 in marlin packing"),
        (QuantSpec("int4", 4, 16, scale_type="float16"), "groups are of 16 values"),
        (QuantSpec("int4", 4, 32, scale_type="e8m0"), "scales of int4 weights are e8m0"),
        (QuantSpec("fp8_e4m3", 8, 0, True), "fp8_e4m3 weights have zero points"),
        (QuantSpec("fp4_e2m1", 4, 32, scale_type="fp8_e4m3"), "of 32 values, served are 16"),
    ],
)
def test_what_is_not_served_is_refused_with_a_reason(spec: QuantSpec, reason: str, native: Native) -> None:
    verdict = NativeLinear(native).supports(LinearQuery(spec, 64, 256, "float32", "cpu"))
    assert not verdict.ok and reason in " ".join(verdict.reasons)


def _spoilt(name: str, param: str, value: float) -> QuantizedWeight:
    weight = canonical_weight(CANONICAL_SPECS[name], 40, 256)
    numbers = weight.params[param]
    (numbers.view(torch.uint8) if numbers.itemsize == 1 else numbers)[3, 1] = value
    return weight


@pytest.mark.parametrize(
    ("name", "param", "value"),
    [
        ("fp8 blocks of 128", "codes", 0xFF),
        ("fp8 e5m2 rows", "codes", 0x7C),
        ("int8 groups of 128", "scale", float("nan")),
        ("int4 groups of 128, zero points", "scale", float("inf")),
        ("mxfp4", "scale", 255),
        ("nvfp4", "scale", 0x7F),
    ],
)
def test_numbers_that_are_not_finite_are_refused(name: str, param: str, value: float, native: Native) -> None:
    with pytest.raises(BadArgumentError, match="a weight of 40 x 256: a number is not finite"):
        NativeLinear(native).pack(_spoilt(name, param, value))


def test_an_order_that_is_none_is_refused(native: Native) -> None:
    for bad in (256, -1, 7):
        weight = canonical_weight(CANONICAL_SPECS["int4 act-order"], 8, 256)
        weight.params["order"][:2] = torch.tensor([7, bad], dtype=torch.int32)
        with pytest.raises(BadArgumentError, match="not finite, or its columns' order is none"):
            NativeLinear(native).pack(weight)


def test_a_weight_of_the_wrong_shape_is_refused(native: Native) -> None:
    weight = canonical_weight(CANONICAL_SPECS["int4 groups of 128"], 8, 256)
    weight.params["scale"] = weight.params["scale"][:, :1]
    with pytest.raises(ValueError, match=r"int4 weight holds .* expected"):
        NativeLinear(native).pack(weight)


def test_packed_codes_are_kept_and_placed_again(native: Native) -> None:
    """With an order of columns behind them."""
    kernel = NativeLinear(native)
    packed = kernel.pack(canonical_weight(CANONICAL_SPECS["int4 act-order"], 40, 256))
    header, memory = kernel.store(packed)
    again, place = kernel.restore(header)
    place[:] = memory
    x = activations(3, 256, torch.float32)
    assert torch.equal(product(kernel, again, x), product(kernel, packed, x))


def test_tensor_scales_are_rows_of_the_same(native: Native) -> None:
    spec = replace(CANONICAL_SPECS["fp8 rows"], group_size=-1)
    weight = canonical_weight(spec, 40, 96)
    weight.params["scale"][:] = 0.003
    x = activations(3, 96, torch.float32)
    kernel = NativeLinear(native)
    got = product(kernel, kernel.pack(weight), x)
    assert error(got, x.double() @ (weight.params["codes"].double() * float(torch.tensor(0.003))).T) < ERROR
