"""Reference ops against torch's own functions and against arithmetic on complex numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
import torch.nn.functional as F

from turret.contracts import OP_NAMES, LinearKernel
from turret.errors import PluginError
from turret.nn import OpTable
from turret.nn.ops import REFERENCE, REFERENCE_OPS

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 1e-5 if actual.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(actual, expected.to(actual.dtype), atol=tolerance, rtol=tolerance)


def test_every_op_of_the_contract_has_a_reference() -> None:
    assert set(REFERENCE_OPS) == set(OP_NAMES)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm(dtype: torch.dtype, offset: float) -> None:
    x, weight = torch.randn(5, 24).to(dtype), torch.randn(24)
    expected = F.rms_norm(x.float(), (24,), weight + offset, 1e-5)
    out = torch.empty_like(x)
    REFERENCE_OPS["rms_norm"](out, x, weight, 1e-5, offset)
    near(out, expected)
    REFERENCE_OPS["rms_norm"](x, x, weight, 1e-5, offset)
    assert torch.equal(x, out), "out may be x"


def test_rms_norm_of_heads_inside_a_fused_projection() -> None:
    fused = torch.randn(5, 40)
    untouched = fused[:, 24:].clone()
    heads = fused[:, :24].view(5, 3, 8)
    weight = torch.randn(8)
    expected = F.rms_norm(heads.clone(), (8,), weight, 1e-6)
    REFERENCE_OPS["rms_norm"](heads, heads, weight, 1e-6, 0.0)
    near(fused[:, :24].view(5, 3, 8), expected)
    assert torch.equal(fused[:, 24:], untouched)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fused_add_rms_norm(dtype: torch.dtype) -> None:
    x, residual, weight = torch.randn(4, 16).to(dtype), torch.randn(4, 16).to(dtype), torch.randn(16)
    total = x + residual
    out = torch.empty_like(x)
    REFERENCE_OPS["fused_add_rms_norm"](out, x, residual, weight, 1e-6, 0.0)
    assert torch.equal(residual, total)
    near(out, F.rms_norm(total.float(), (16,), weight, 1e-6))


@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_layer_norm(with_weight: bool, with_bias: bool) -> None:
    x = torch.randn(4, 16) * 3 + 1
    weight = torch.randn(16) if with_weight else None
    bias = torch.randn(16) if with_bias else None
    out = torch.empty_like(x)
    REFERENCE_OPS["layer_norm"](out, x, weight, bias, 1e-5)
    near(out, F.layer_norm(x, (16,), weight, bias, 1e-5))


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("rotated", [8, 4])
def test_rotary_turns_complex_numbers(interleaved: bool, rotated: int) -> None:
    q, k = torch.randn(6, 3, 8), torch.randn(6, 1, 8)
    angles = torch.randn(10, rotated // 2)
    table = torch.cat((angles.cos(), angles.sin()), -1)
    positions = torch.tensor([3, 0, 9, 9, 1, 2])

    def turn(x: torch.Tensor) -> torch.Tensor:
        part, rest = x[..., :rotated], x[..., rotated:]
        real, imaginary = (part[..., ::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
        unit = torch.polar(torch.ones_like(angles), angles)[positions][:, None]
        turned = torch.complex(real.contiguous(), imaginary.contiguous()) * unit
        pair = (turned.real, turned.imag)
        joined = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
        return torch.cat((joined, rest), -1)

    expected = turn(q), turn(k)
    REFERENCE_OPS["rotary"](q, k, table, positions, interleaved)
    near(q, expected[0])
    near(k, expected[1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_activations(dtype: torch.dtype) -> None:
    x = torch.randn(3, 20).to(dtype)
    gate, up = x.float().chunk(2, -1)
    out = torch.empty(3, 10, dtype=dtype)
    REFERENCE_OPS["silu_and_mul"](out, x)
    near(out, F.silu(gate) * up)
    for tanh in (True, False):
        REFERENCE_OPS["gelu_and_mul"](out, x, tanh)
        near(out, F.gelu(gate, approximate="tanh" if tanh else "none") * up)
    wide = torch.empty_like(x)
    expected = {
        "silu": F.silu(x.float()),
        "gelu": F.gelu(x.float()),
        "gelu_tanh": F.gelu(x.float(), approximate="tanh"),
        "relu2": F.relu(x.float()) ** 2,
    }
    for name, values in expected.items():
        REFERENCE_OPS["activation"](wide, x, name)
        near(wide, values)
    with pytest.raises(ValueError, match="unknown activation 'swoosh'"):
        REFERENCE_OPS["activation"](wide, x, "swoosh")


def test_small_ops() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    capped, added, scaled = x.clone(), x.clone(), x.clone()
    REFERENCE_OPS["softcap"](capped, 2.0)
    near(capped, 2.0 * torch.tanh(x / 2.0))
    REFERENCE_OPS["add"](added, y)
    near(added, x + y)
    REFERENCE_OPS["scale"](scaled, 3.0)
    near(scaled, x * 3.0)
    out = torch.empty(2, 4)
    REFERENCE_OPS["embedding"](out, torch.tensor([2, 0]), x, 0.5)
    near(out, x[[2, 0]] * 0.5)


class Provider:
    """Offers given ops."""

    api = "1.0"

    def __init__(self, name: str, ops: Mapping[str, Callable[..., None]]) -> None:
        self.name = name
        self._ops = ops

    def ops(self) -> Mapping[str, Callable[..., None]]:
        return self._ops

    def linear_kernels(self) -> Sequence[LinearKernel]:
        return ()


def test_the_first_provider_of_a_name_wins_and_the_reference_fills_in() -> None:
    def one(*args: object) -> None: ...

    def other(*args: object) -> None: ...

    table = OpTable.resolve([Provider("best", {"add": one}), Provider("second", {"add": other, "scale": other})])
    assert (table.ops["add"], table.ops["scale"], table.ops["rotary"]) == (one, other, REFERENCE_OPS["rotary"])
    assert (table.origin["add"], table.origin["scale"], table.origin["rotary"]) == ("best", "second", REFERENCE)


def test_an_op_that_the_contract_does_not_name_is_refused() -> None:
    with pytest.raises(PluginError, match="'odd' offers unknown ops: frobnicate"):
        OpTable.resolve([Provider("odd", {"frobnicate": lambda: None})])
