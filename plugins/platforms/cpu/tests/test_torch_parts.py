"""Forwards of which torch computes a part: the program splits there, for any number of tokens, or is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from turret.contracts import StepBindings, Variation
from turret.errors import NotSupportedError
from turret.nn import Scratch
from turret_platform_cpu.native import Native
from turret_platform_cpu.ops import CPUOps
from turret_platform_cpu.program import NativeProgram
from turret_platform_cpu.recorder import CPUGraphs

Steps = Callable[[int], StepBindings]
TABLE = torch.randn(64, 12, generator=torch.Generator().manual_seed(1))
GAIN = torch.linspace(0.5, 2.0, 12)


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


class Model:
    """Native look-up and norm around `between(x, step)`, whose result is what the norm takes."""

    def __init__(self, native: Native, between: Callable[[Tensor, StepBindings], Any]) -> None:
        self.ops, self.scratch, self.between = CPUOps(native), Scratch(40, "cpu"), between

    def __call__(self, step: StepBindings) -> Tensor:
        rows = step.ids.shape[0]
        x = self.scratch.take("x", (rows, 12), torch.float32)
        out = self.scratch.take("out", (rows, 12), torch.float32)
        self.ops.embedding(x, step.ids, TABLE, 1.0)
        found = self.between(x, step)
        self.ops.rms_norm(out, x if found is None else found, GAIN, 1e-5, 0.0)
        return out


def record(native: Native, model: Model, bindings: Steps, sizes: tuple[int, int, int] = (7, 5, 40)) -> NativeProgram:
    """Record a step of sizes[0] tokens, vary it with sizes[1]; none has more than sizes[2]."""
    step, other, most = bindings(sizes[0]), bindings(sizes[1]), sizes[2]
    model(step)
    variation = Variation(most, lambda: (lambda: model(other), other))
    return CPUGraphs(native).record(lambda: model(step), step, variation)


def softplus(x: Tensor, step: StepBindings) -> Tensor:
    return torch.nn.functional.softplus(x)


def in_place(x: Tensor, step: StepBindings) -> None:
    x[:, :6].mul_(x[:, 6:])
    torch.add(x[:, 6:], 1.0, out=x[:, 6:])


def positions(x: Tensor, step: StepBindings) -> Tensor:
    return x + torch.sin(step.positions.to(torch.float32)).unsqueeze(1)


def sizes(x: Tensor, step: StepBindings) -> Tensor:
    rows = x.shape[0]
    heads = x.view(rows, 3, 4).transpose(0, 1).reshape(3 * rows, 4).cumsum(1)
    return heads.view(3, rows, 4).transpose(0, 1).reshape(rows, 12)


def several(x: Tensor, step: StepBindings) -> Tensor:
    best, where = torch.topk(x, 4, dim=1)
    return torch.cat([best, where.to(x.dtype), x.new_empty((x.shape[0], 4)).fill_(2.0)], dim=1)


@pytest.mark.parametrize("between", [softplus, in_place, positions, sizes, several])
def test_a_split_program_has_the_bits_of_the_forward(
    native: Native, bindings: Steps, between: Any
) -> None:
    model = Model(native, between)
    program = record(native, model, bindings)
    assert program.steps == 2 and len(program.splits) == 1 and program.splits[0]
    for tokens in (7, 1, 40, 3):
        step = bindings(tokens)
        step.ids.copy_(torch.arange(tokens) * 5 % 64)
        expected = model(step).clone()
        for buffer in model.scratch.buffers.values():
            buffer.fill_(float("nan"))
        program.replay(step)
        assert torch.equal(model.scratch.buffers["out"][:tokens], expected), tokens


def test_views_alone_split_nothing(native: Native, bindings: Steps) -> None:
    program = record(native, Model(native, lambda x, step: x.view(-1, 12)[: x.shape[0]]), bindings)
    assert program.splits == []


def test_forwards_of_one_token_are_recorded_where_there_are_no_others(native: Native, bindings: Steps) -> None:
    model = Model(native, softplus)
    program = record(native, model, bindings, (1, 1, 1))
    step = bindings(1)
    step.ids[0] = 9
    expected = model(step).clone()
    model.scratch.buffers["out"].zero_()
    program.replay(step)
    assert torch.equal(model.scratch.buffers["out"][:1], expected)


@pytest.mark.parametrize(("between", "reason"), [
    (lambda x, step: x * float(x.sum()), "reads tensors"),
    (lambda x, step: x * x.tolist()[0][0], "reads tensors"),
    (lambda x, step: x.mul(2.0) if x.shape[0] > 6 else x.add(2.0), "depend on the number of tokens"),
    (lambda x, step: x * (1.0 / x.shape[0]), "depend on the number of tokens"),
    (lambda x, step: torch.softmax(x @ x.T, dim=1) @ x, "grows otherwise"),
    (lambda x, step: x * x[x.shape[0] // 3 : x.shape[0] // 3 + 1], "grows otherwise"),
])  # fmt: skip
def test_what_cannot_be_repeated_is_refused(
    native: Native, bindings: Steps, between: Any, reason: str
) -> None:
    with pytest.raises(NotSupportedError, match=reason):
        record(native, Model(native, between), bindings)
