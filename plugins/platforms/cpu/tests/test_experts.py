"""A mixture of experts in one op: right against float64, and each token the same bits whoever comes with it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from turret.contracts import ExpertWeights, LinearCall, MoECall, QuantizedWeight, Routing
from turret.nn.ops import REFERENCE_OPS
from turret_platform_cpu.experts import NativeExperts
from turret_platform_cpu.linear import NativeLinear
from turret_platform_cpu.native import BadArgumentError, Native
from turret_platform_cpu.ops import CPUOps
from turret_platform_cpu.recorder import CPUGraphs
from turret_quant_gguf.blocks import spec_of
from turret_quant_gguf.method import GGUFMethod

HIDDEN, EXPERTS, COUNT = 256, 7, 3
ROWS = (1, 2, 5, 33, 130)
ERROR = {torch.float32: 3e-6, torch.bfloat16: 1.2e-2}
"""Against float64, relative to the largest output; bfloat16's is the rounding of what has been gated."""


def dense(weight: QuantizedWeight) -> Tensor:
    return weight.params["weight"] if weight.spec is None else GGUFMethod().dequantize(weight)


class Mixture:
    """Experts of one format, packed, and what they hold in float64."""

    def __init__(self, native: Native, kind: str, dtype: torch.dtype, width: int, int8: bool = False) -> None:
        kernel = NativeLinear(native, int8)
        pairs = [(made(kind, dtype, 2 * width, HIDDEN, e), made(kind, dtype, HIDDEN, width, e)) for e in range(EXPERTS)]
        self.dense = [(dense(up).double(), dense(down).double()) for up, down in pairs]
        packed = [(kernel.pack(up), kernel.pack(down)) for up, down in pairs]
        self.packed = ExpertWeights(kernel, [up for up, _ in packed], [down for _, down in packed], "silu")
        self.op = NativeExperts(native, int8)
        self.ops = CPUOps(native, int8)
        self.width, self.dtype, self.kernel = width, dtype, kernel

    def __call__(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        out = torch.full((len(x), HIDDEN), float("nan"))
        self.op(self.call(out, x, weights, ids))
        return out

    def one_by_one(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """The same experts as linears of their own."""
        out = torch.full((len(x), HIDDEN), float("nan"))
        REFERENCE_OPS["moe"](self.call(out, x, weights, ids))
        return out

    def exact(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        out = torch.zeros(len(x), HIDDEN, dtype=torch.float64)
        for token, row in enumerate(x.double()):
            for weight, expert in zip(weights[token].double(), ids[token].tolist(), strict=True):
                up, down = self.dense[expert]
                gate, value = (up @ row).chunk(2)
                out[token] += weight * (down @ (torch.nn.functional.silu(gate) * value))
        return out

    def call(self, out: Tensor, x: Tensor, weights: Tensor, ids: Tensor) -> MoECall:
        pairs = ids.numel()
        scratch = torch.empty(pairs, HIDDEN, dtype=x.dtype), torch.empty(pairs, HIDDEN)
        experts = [self._expert(number) for number in range(EXPERTS)]
        return MoECall(out, x, weights, ids, experts, *scratch, self.packed)

    def _expert(self, number: int) -> Callable[[Tensor, Tensor], None]:
        def run(out: Tensor, x: Tensor) -> None:
            wide, active = x.new_empty(len(x), 2 * self.width), x.new_empty(len(x), self.width)
            self.kernel.apply(LinearCall(wide, x, self.packed.up[number]))
            self.ops.silu_and_mul(active, wide)
            self.kernel.apply(LinearCall(out, active, self.packed.down[number]))

        return run


def made(kind: str, dtype: torch.dtype, rows: int, columns: int, seed: int) -> QuantizedWeight:
    """A weight of ordinary size; blocks are made by the package `gguf` where it can."""
    generator = torch.Generator().manual_seed(100 * seed + rows)
    plain = torch.randn(rows, columns, generator=generator) / columns**0.5
    if kind == "plain":
        return QuantizedWeight(None, rows, columns, {"weight": plain.to(dtype)})
    quants = pytest.importorskip("gguf.quants")
    number = quants.GGMLQuantizationType[kind.upper()]
    blocks = torch.from_numpy(quants.quantize(plain.numpy(), number))
    return QuantizedWeight(spec_of(kind), rows, columns, {"weight": blocks})


def tokens(rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """x, weights, ids; one expert is nobody's, one is most tokens' choice."""
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, HIDDEN, generator=generator).to(dtype)
    logits = torch.randn(rows, EXPERTS, generator=generator)
    logits[:, 2] = -100.0
    logits[:, 5] += 2.0
    weights, ids = torch.empty(rows, COUNT), torch.empty(rows, COUNT, dtype=torch.int64)
    REFERENCE_OPS["route"](weights, ids, logits, None, Routing())
    return x, weights, ids


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["plain", "q8_0", "q4_0", "q4_1"])
def test_it_is_the_weighted_sum_of_experts(kind: str, dtype: torch.dtype, level: str, native: Native) -> None:
    mixture = Mixture(native, kind, dtype, 96)
    for rows in ROWS[:4]:
        given = tokens(rows, dtype)
        expected = mixture.exact(*given)
        error = float((mixture(*given).double() - expected).abs().max() / expected.abs().max())
        assert error < ERROR[dtype], f"{rows} rows"


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("width", [96, 32, 80])
@pytest.mark.parametrize("kind", ["plain", "q8_0"])
def test_its_bits_are_those_of_experts_one_by_one(
    kind: str, width: int, int8: bool, level: str, native: Native
) -> None:
    if kind == "q8_0" and width % 32:
        pytest.skip("blocks are 32 wide")
    mixture = Mixture(native, kind, torch.bfloat16, width, int8)
    for rows in ROWS:
        given = tokens(rows, torch.bfloat16)
        assert torch.equal(mixture(*given), mixture.one_by_one(*given)), f"{rows} rows"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["plain", "q4_1"])
def test_a_token_does_not_see_who_comes_with_it(
    kind: str, dtype: torch.dtype, native: Native, threads: Callable[[int], None]
) -> None:
    mixture = Mixture(native, kind, dtype, 96, int8=True)
    given = tokens(130, dtype)
    whole = mixture(*given)
    for count in (1, 2, 3):
        threads(count)
        assert torch.equal(mixture(*given), whole)
        for start, stop in ((0, 1), (64, 67), (129, 130), (3, 120)):
            assert torch.equal(mixture(*(part[start:stop].contiguous() for part in given)), whole[start:stop])


def test_an_expert_that_does_not_exist_is_refused(native: Native) -> None:
    mixture = Mixture(native, "plain", torch.float32, 32)
    x, weights, ids = tokens(2, torch.float32)
    ids[1, 0] = EXPERTS
    with pytest.raises(BadArgumentError, match="out of range"):
        mixture(x, weights, ids)


def test_experts_packed_differently_run_one_by_one(native: Native) -> None:
    mixture = Mixture(native, "q8_0", torch.bfloat16, 96)
    other = Mixture(native, "q4_0", torch.bfloat16, 96)
    mixture.packed.up = [other.packed.up[0], *mixture.packed.up[1:]]
    given = tokens(9, torch.bfloat16)
    assert torch.equal(mixture(*given), mixture.one_by_one(*given))


def test_it_records_and_replays_for_any_number_of_tokens(native: Native, bindings: Callable) -> None:
    mixture = Mixture(native, "q8_0", torch.bfloat16, 96, int8=True)
    x, weights, ids = (part.clone() for part in tokens(130, torch.bfloat16))
    out, count = torch.zeros(130, HIDDEN), 9

    def forward() -> None:
        mixture.op(mixture.call(out[:count], x[:count], weights[:count], ids[:count]))

    program = CPUGraphs(native).record(forward, bindings(count))
    assert program.steps == 1
    for rows in (1, 130, 17):
        given = tokens(rows, torch.bfloat16)
        for to, part in zip((x, weights, ids), given, strict=True):
            to[:rows] = part
        program.replay(bindings(rows))
        assert torch.equal(out[:rows], mixture(*given))
