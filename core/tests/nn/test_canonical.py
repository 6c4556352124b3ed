"""The canonical packing: what its numbers stand for, one at a time, against what torch and arithmetic say."""

from dataclasses import replace

import pytest
import torch

from turret.contracts import LayerSpec, QuantizedWeight, QuantSpec
from turret.errors import LoadError
from turret.nn.canonical import canonical_params, dequantize, pack_nibbles, unpack_nibbles
from turret.nn.linear_kernels import sliceable_rows

N, K = 3, 70


def randint(low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(high))


def dense(spec: QuantSpec, params: dict[str, torch.Tensor]) -> torch.Tensor:
    told = canonical_params(LayerSpec("layer", N, K), spec)
    found = {name: (tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in params.items()}
    assert found == {name: (param.shape, param.dtype) for name, param in told.items()}
    return dequantize(QuantizedWeight(spec, N, K, params))


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("group", [0, 32])
def test_int4_is_a_code_less_its_zero_point_times_a_scale(group: int, zero_points: bool) -> None:
    codes, groups = randint(0, 16, N, K), 3 if group else 1
    scale, zero = torch.rand(N, groups).half(), randint(0, 17, N, groups).to(torch.uint8)
    params = {"codes": pack_nibbles(codes), "scale": scale} | ({"zero": zero} if zero_points else {})
    got = dense(QuantSpec("int4", 4, group, zero_points, "float16"), params)
    for n in range(N):
        for k in range(K):
            g = k // 32 if group else 0
            less = int(zero[n, g]) if zero_points else 8
            assert got[n, k] == float(scale[n, g]) * (int(codes[n, k]) - less)


def test_int8_codes_are_signed_and_those_with_zero_points_are_not() -> None:
    codes, scale = randint(-128, 128, N, K).to(torch.int8), torch.rand(N, 1)
    assert torch.equal(dense(QuantSpec("int8", 8, 0), {"codes": codes, "scale": scale}), codes.float() * scale)
    unsigned, zero = (codes.int() + 128).to(torch.uint8), torch.full((N, 1), 128, dtype=torch.uint8)
    shifted = dense(QuantSpec("int8", 8, 0, True), {"codes": unsigned, "scale": scale, "zero": zero})
    assert torch.equal(shifted, codes.float() * scale)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_8_bit_floats_are_torchs(kind: torch.dtype) -> None:
    codes, scale = torch.randn(N, K).to(kind), torch.rand(N, 3)
    name = "fp8_e4m3" if kind == torch.float8_e4m3fn else "fp8_e5m2"
    got = dense(QuantSpec(name, 8, 32), {"codes": codes, "scale": scale})
    assert torch.equal(got, codes.float() * scale.repeat_interleave(32, 1)[:, :K])


def test_powers_of_two_are_torchs() -> None:
    codes, scale = pack_nibbles(torch.full((N, K), 2)), torch.tensor([[0, 1, 127]] * N, dtype=torch.uint8)
    got = dense(QuantSpec("fp4_e2m1", 4, 32, scale_type="e8m0"), {"codes": codes, "scale": scale})
    assert torch.equal(got[:, ::32], scale.view(torch.float8_e8m0fnu).float())


def test_4_bit_floats_have_a_sign_two_exponent_bits_and_one_of_a_mantissa() -> None:
    codes = torch.arange(K).remainder(16).repeat(N, 1)
    scale, factor = torch.full((N, 5), 2.0).to(torch.float8_e4m3fn), torch.tensor([0.25, 1.0, 3.0])
    params = {"codes": pack_nibbles(codes), "scale": scale, "global_scale": factor}
    got = dense(QuantSpec("fp4_e2m1", 4, 16, scale_type="fp8_e4m3"), params)
    for n in range(N):
        for k in range(K):
            sign, exponent, mantissa = int(codes[n, k]) >> 3, int(codes[n, k]) >> 1 & 3, int(codes[n, k]) & 1
            value = (1 + mantissa / 2) * 2 ** (exponent - 1) if exponent else mantissa / 2
            assert got[n, k] == (-1) ** sign * value * 2 * float(factor[n])


def test_columns_in_an_order_of_their_own_go_back() -> None:
    spec = QuantSpec("int8", 8, 32)
    params = {"codes": randint(-128, 128, N, K).to(torch.int8), "scale": torch.rand(N, 3)}
    straight = dense(spec, params)
    order = torch.randperm(K, generator=torch.Generator().manual_seed(1))
    ordered = dense(replace(spec, act_order=True), params | {"order": order.int()})
    assert torch.equal(ordered[:, order], straight)


def test_an_order_of_columns_is_nothing_to_cut_by_rows() -> None:
    """Not even where there are as many columns as rows."""
    spec = QuantSpec("int8", 8, 0, act_order=True)
    params = {"codes": torch.zeros(4, 4, dtype=torch.int8), "scale": torch.ones(4, 1), "order": torch.arange(4).int()}
    assert not sliceable_rows(QuantizedWeight(spec, 4, 4, params))


def test_nibbles_come_back() -> None:
    codes = randint(0, 16, N, 7).to(torch.uint8)
    assert torch.equal(unpack_nibbles(pack_nibbles(codes))[:, :7], codes)
    assert int(pack_nibbles(torch.tensor([[3, 12]]))[0, 0]) == 3 | 12 << 4


def test_what_has_no_canonical_packing_is_named() -> None:
    with pytest.raises(LoadError, match="layer 'layer': int3 with float16 scales has no canonical packing"):
        canonical_params(LayerSpec("layer", N, K), QuantSpec("int3", 3, 32, scale_type="float16"))
