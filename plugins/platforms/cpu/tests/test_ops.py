"""Native ops against `turret.nn`'s reference, over every ISA level, ragged widths and strided inputs."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from turret.contracts import Routing
from turret.nn.ops import REFERENCE_OPS
from turret.testing.ops import check_linears, check_ops
from turret_platform_cpu.native import BadArgumentError, Native
from turret_platform_cpu.ops import CPUOps

ERROR = {torch.float32: 1e-6, torch.bfloat16: 1.6e-2}


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 2).to(dtype)


def same(got: Tensor, expected: Tensor) -> None:
    scale = float(expected.double().abs().max())
    assert float((got.double() - expected.double()).abs().max()) <= ERROR[got.dtype] * max(scale, 1e-3)


def test_the_conformance_kit_agrees(level: str, native: Native) -> None:
    check_ops(lambda: CPUOps(native))
    check_linears(lambda: CPUOps(native))


@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize("width", [1, 15, 64, 100, 576, 2050])
def test_norms_of_any_width(width: int, dtype: torch.dtype, level: str, native: Native) -> None:
    ops = CPUOps(native)
    x, residual = numbers(5, width, dtype=dtype), numbers(5, width, dtype=dtype, seed=1)
    for weight in (numbers(width, seed=2), numbers(width, dtype=dtype, seed=2)):
        for offset in (0.0, 1.0):
            got, expected = torch.empty_like(x), torch.empty_like(x)
            ops.rms_norm(got, x, weight, 1e-6, offset)
            REFERENCE_OPS["rms_norm"](expected, x, weight, 1e-6, offset)
            same(got, expected)
            mine, theirs = residual.clone(), residual.clone()
            ops.fused_add_rms_norm(got, x, mine, weight, 1e-6, offset)
            REFERENCE_OPS["fused_add_rms_norm"](expected, x, theirs, weight, 1e-6, offset)
            same(got, expected)
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", ERROR)
def test_norm_of_heads_in_place_within_a_fused_projection(dtype: torch.dtype, level: str, native: Native) -> None:
    fused = numbers(7, 3 * 32 + 40, dtype=dtype)
    before = fused.clone()
    heads = fused[:, 8 : 8 + 96].view(7, 3, 32)
    expected = torch.empty(7, 3, 32, dtype=dtype)
    REFERENCE_OPS["rms_norm"](expected, heads.clone(), numbers(32, seed=1), 1e-5, 0.0)
    CPUOps(native).rms_norm(heads, heads, numbers(32, seed=1), 1e-5, 0.0)
    same(fused[:, 8:104].reshape(7, 3, 32), expected)
    assert torch.equal(fused[:, :8], before[:, :8]) and torch.equal(fused[:, 104:], before[:, 104:])


@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotated", [16, 24, 64])
def test_rotary_on_slices_of_a_fused_projection(
    rotated: int, interleaved: bool, dtype: torch.dtype, level: str, native: Native
) -> None:
    fused = numbers(9, 6 * 64, dtype=dtype)
    other = fused.clone()
    table, positions = torch.randn(50, rotated), torch.tensor([0, 49, 3, 3, 7, 1, 2, 30, 48])

    def heads(tensor: Tensor) -> tuple[Tensor, Tensor]:
        return tensor[:, :192].view(9, 3, 64), tensor[:, 192:320].view(9, 2, 64)

    CPUOps(native).rotary(*heads(fused), table, positions, interleaved)
    REFERENCE_OPS["rotary"](*heads(other), table, positions, interleaved)
    same(fused, other)
    assert torch.equal(fused[:, 320:], other[:, 320:])


@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize("width", [1, 31, 96, 1536])
def test_gated_activations(width: int, dtype: torch.dtype, level: str, native: Native) -> None:
    ops, x = CPUOps(native), numbers(6, 2 * width, dtype=dtype)
    x[0, 0], x[1, 0] = -80.0, 80.0  # where exp would leave its range
    for name, extra in (("silu_and_mul", ()), ("gelu_and_mul", (True,)), ("gelu_and_mul", (False,))):
        got, expected = torch.empty(6, width, dtype=dtype), torch.empty(6, width, dtype=dtype)
        getattr(ops, name)(got, x, *extra)
        REFERENCE_OPS[name](expected.float(), x.float(), *extra)
        wide = torch.empty(6, width)
        REFERENCE_OPS[name](wide, x.float(), *extra)
        same(got, wide.to(dtype))


@pytest.mark.parametrize("dtype", ERROR)
def test_softcap(dtype: torch.dtype, level: str, native: Native) -> None:
    got = numbers(3, 1001, dtype=dtype) * 30
    expected = got.clone().float()
    CPUOps(native).softcap(got, 30.0)
    REFERENCE_OPS["softcap"](expected, 30.0)
    same(got, expected.to(dtype))


@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize("width", [1, 15, 64, 100, 2050])
def test_layer_norms_of_any_width(width: int, dtype: torch.dtype, level: str, native: Native) -> None:
    x, weight, bias = numbers(5, width, dtype=dtype) + 3, numbers(width, seed=2), numbers(width, dtype=dtype, seed=3)
    for pair in ((weight, bias), (weight, None), (None, None)):
        got, expected = torch.empty(5, width, dtype=dtype), torch.empty(5, width, dtype=dtype)
        CPUOps(native).layer_norm(got, x, *pair, 1e-5)
        REFERENCE_OPS["layer_norm"](expected, x, *pair, 1e-5)
        assert torch.allclose(got.float(), expected.float(), rtol=ERROR[dtype], atol=ERROR[dtype] + 1e-5)


@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize("width", [1, 31, 96, 1536])
def test_plain_activations(width: int, dtype: torch.dtype, level: str, native: Native) -> None:
    x = numbers(6, width, dtype=dtype)
    x[0, 0], x[1, 0] = -80.0, 80.0
    for name in ("relu2", "gelu", "gelu_tanh", "silu"):
        got, wide = torch.empty(6, width, dtype=dtype), torch.empty(6, width)
        CPUOps(native).activation(got, x, name)
        REFERENCE_OPS["activation"](wide, x.float(), name)
        same(got, wide.to(dtype))


def test_steps_of_the_residual_stream_mix_types(level: str, native: Native) -> None:
    ops, stream, branch = CPUOps(native), numbers(7, 33), numbers(7, 33, dtype=torch.bfloat16, seed=1)
    expected = stream + branch.float()
    ops.add(stream, branch)
    assert torch.equal(stream, expected)
    ops.scale(stream, 0.3)
    assert torch.equal(stream, expected * 0.3)
    ops.copy(branch, stream)
    assert torch.equal(branch, stream.to(torch.bfloat16))
    table, looked_up = numbers(9, 33, dtype=torch.bfloat16), torch.empty(2, 33)
    ops.embedding(looked_up, torch.tensor([8, 1]), table, 0.5)
    assert torch.equal(looked_up, table[[8, 1]].float() * 0.5)


@pytest.mark.parametrize("dtype", ERROR)
def test_embedding_scales_and_refuses_ids_beyond_the_table(dtype: torch.dtype, level: str, native: Native) -> None:
    ops, table = CPUOps(native), numbers(11, 40, dtype=dtype)
    ids = torch.tensor([10, 0, 3])
    got, expected = torch.empty(3, 40, dtype=dtype), torch.empty(3, 40, dtype=dtype)
    ops.embedding(got, ids, table, 6.25)
    REFERENCE_OPS["embedding"](expected, ids, table, 6.25)
    same(got, expected)
    with pytest.raises(BadArgumentError):
        ops.embedding(got, torch.tensor([0, 11, 1]), table, 1.0)


def test_other_types_go_to_the_reference(native: Native) -> None:
    x, out = numbers(2, 32, dtype=torch.float16), torch.empty(2, 16, dtype=torch.float16)
    CPUOps(native).silu_and_mul(out, x)
    expected = torch.empty(2, 16, dtype=torch.float16)
    REFERENCE_OPS["silu_and_mul"](expected, x)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("dtype", ERROR)
def test_rows_do_not_depend_on_the_batch_or_the_threads(
    dtype: torch.dtype, level: str, native: Native, threads: Callable[[int], None]
) -> None:
    """Enough rows that the work is really shared."""
    ops, x, weight = CPUOps(native), numbers(64, 1152, dtype=dtype), numbers(1152, seed=1)
    threads(1)
    normed, active = torch.empty_like(x), torch.empty(64, 576, dtype=dtype)
    ops.rms_norm(normed, x, weight, 1e-6, 0.0)
    ops.silu_and_mul(active, x)
    for count in (2, 3):
        threads(count)
        for start, rows in ((0, 64), (5, 1), (9, 33)):
            part = x[start : start + rows]
            again, gated = torch.empty_like(part), torch.empty(rows, 576, dtype=dtype)
            ops.rms_norm(again, part, weight, 1e-6, 0.0)
            ops.silu_and_mul(gated, part)
            assert torch.equal(again, normed[start : start + rows])
            assert torch.equal(gated, active[start : start + rows])


@pytest.mark.parametrize("width", [1, 15, 16, 255, 256, 257, 1000])
def test_argmax_finds_the_first_largest(width: int, level: str, native: Native, threads: Callable[[int], None]) -> None:
    threads(2)
    x = torch.randint(-50, 50, (40, width + 3), generator=torch.Generator().manual_seed(width)).float()[:, :width]
    x[3] = float("-inf")
    x[5, width // 2] = float("inf")
    x[7, width // 3] = float("nan")
    x[7, -1] = float("nan")
    token, value = torch.empty(40, dtype=torch.int64), torch.empty(40)
    CPUOps(native).argmax(token, value, x)
    assert token.tolist() == x.numpy().argmax(axis=1).tolist()
    assert torch.equal(value.view(torch.int32), x.gather(1, token[:, None])[:, 0].view(torch.int32))


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
@pytest.mark.parametrize(("experts", "count"), [(1, 1), (5, 2), (60, 4), (128, 8), (257, 9)])
def test_routing(
    scoring: str, experts: int, count: int, level: str, native: Native, threads: Callable[[int], None]
) -> None:
    """As the reference routes, with a bias that only chooses; and each row the same bits whatever stands beside it."""
    threads(2)
    generator = torch.Generator().manual_seed(experts)
    logits = torch.randn(33, experts, generator=generator) * 3
    bias = torch.randn(experts, generator=generator)
    ops = CPUOps(native)
    for used in (None, bias):
        for routing in (Routing(scoring, True, 2.5), Routing(scoring, False, 1.0)):
            got, expected = (
                (torch.empty(33, count), torch.empty(33, count, dtype=torch.int64)) for _ in range(2)
            )
            ops.route(*got, logits, used, routing)
            REFERENCE_OPS["route"](*expected, logits, used, routing)
            assert torch.equal(got[1], expected[1])
            assert torch.allclose(got[0], expected[0], rtol=1e-5, atol=1e-7)
            alone = torch.empty(1, count), torch.empty(1, count, dtype=torch.int64)
            ops.route(*alone, logits[7:8], used, routing)
            assert torch.equal(alone[0], got[0][7:8])


@pytest.mark.parametrize("width", [1, 31, 64])
def test_a_gate_has_the_same_bits_in_any_batch(width: int, level: str, native: Native) -> None:
    x, y, gate = torch.randn(19, width), torch.randn(19, width), torch.randn(19, 1)
    expected = x + gate.sigmoid() * y
    one = x[4:5].clone()
    ops = CPUOps(native)
    ops.add_gated(x, y, gate)
    ops.add_gated(one, y[4:5], gate[4:5])
    assert torch.allclose(x, expected, rtol=1e-5, atol=1e-6) and torch.equal(one, x[4:5])
