"""Numeric cases of op providers: every op and linear kernel against `turret.nn`'s reference.

Owns the inputs and the comparison. Knows no provider.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from turret.contracts import OP_NAMES, LinearCall, LinearQuery, OpProvider, QuantizedWeight, Routing, SampleRow
from turret.nn.ops import REFERENCE_OPS
from turret.testing.canonical import check_quantized
from turret.testing.cases import Case, NotApplicable, Subject

__all__ = ["build", "check_linears", "check_ops"]

TOLERANCE = {"float32": 2e-5, "bfloat16": 3e-2}
ROWS = (1, 3, 17)
OUT_FEATURES, IN_FEATURES = 24, 40
Arguments = Callable[[Callable[..., Tensor], int], tuple[Any, ...]]


def build(subject: Subject) -> Iterator[Case]:
    yield subject.case("numeric", "ops", check_ops, subject.load)
    yield subject.case("numeric", "linears", check_linears, subject.load)
    yield subject.case("numeric", "quantized_linears", check_quantized, subject.load)


def _inputs() -> Mapping[str, Arguments]:
    """Arguments of each op for t rows; the first is what is compared. `new(*shape)` makes numbers of the dtype."""
    size, heads, head = 48, 4, 16
    table = torch.randn(64, head)
    return {
        "embedding": lambda new, t: (new(t, size), torch.arange(t) * 3 % 11, new(11, size), 1.5),
        "rms_norm": lambda new, t: (new(t, size), new(t, size), new(size), 1e-6, 1.0),
        "fused_add_rms_norm": lambda new, t: (new(t, size), new(t, size), new(t, size), new(size), 1e-6, 0.0),
        "layer_norm": lambda new, t: (new(t, size), new(t, size), new(size), new(size), 1e-5),
        "rotary": lambda new, t: (new(t, heads, head), new(t, 2, head), table, torch.arange(t) * 2 % 64, False),
        "silu_and_mul": lambda new, t: (new(t, size), new(t, 2 * size)),
        "gelu_and_mul": lambda new, t: (new(t, size), new(t, 2 * size), True),
        "activation": lambda new, t: (new(t, size), new(t, size), "relu2"),
        "softcap": lambda new, t: (new(t, size), 5.0),
        "add": lambda new, t: (new(t, size), new(t, size)),
        "scale": lambda new, t: (new(t, size), 0.5),
        "copy": lambda new, t: (new(t, size), new(t, size)),
        "add_gated": lambda new, t: (new(t, size), new(t, size), new(t, 1).float()),
        "route": lambda new, t: (torch.zeros(t, 3), torch.zeros(t, 3, dtype=torch.int64), new(t, size).float(), None,
                                 Routing("softmax", True, 1.5)),
        "argmax": lambda new, t: (torch.zeros(t, dtype=torch.int64), torch.zeros(t), new(t, size).float()),
        "sample": lambda new, t: ([], new(t, size).float(), [_asked(i) for i in range(t)]),
    }


def _asked(row: int) -> SampleRow:
    """Numbers far from every edge, so that rounding cannot excuse another token."""
    filters: Sequence[dict[str, Any]] = (
        {}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.2}, {"temperature": 0.0, "logprobs": 3})
    return SampleRow(**{"uniform": 0.37 + 0.01 * row, "temperature": 0.8, **filters[row % len(filters)]})


def check_ops(load: Callable[[], OpProvider]) -> None:
    """Each offered op does what the reference does, tensors that it may change included."""
    offered = load().ops()
    strange = sorted(set(offered) - set(OP_NAMES))
    assert not strange, f"the contract knows no op called {', '.join(strange)}"
    if not offered:
        raise NotApplicable("it offers no ops")
    inputs = _inputs()
    for name, op in offered.items():
        for dtype in TOLERANCE:
            for rows in ROWS if name in inputs else ():
                _compare(name, op, inputs[name], (dtype, rows))


def _compare(name: str, op: Callable[..., None], make: Arguments, point: tuple[str, int]) -> None:
    dtype, rows = point
    generator = torch.Generator().manual_seed(rows)

    def new(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(getattr(torch, dtype))

    mine = make(new, rows)
    theirs = tuple(item.clone() if isinstance(item, Tensor) else copy.copy(item) for item in mine)
    op(*mine)
    REFERENCE_OPS[name](*theirs)
    for number, (got, expected) in enumerate(zip(mine, theirs, strict=True)):
        if isinstance(got, Tensor) and not got.is_floating_point():
            assert torch.equal(got, expected), f"{name}, {dtype}, {rows} rows, argument {number} is another number"
        elif isinstance(got, Tensor):
            assert _near(got, expected, TOLERANCE[dtype]), f"{name}, {dtype}, {rows} rows, argument {number} is off"
        elif name == "sample" and number == 0:
            same = [(o.token, o.fault, o.rank) for o in got] == [(o.token, o.fault, o.rank) for o in expected]
            assert same, f"sample, {rows} rows: other tokens than the reference's, {got} for {expected}"


def _near(got: Tensor, expected: Tensor, tolerance: float) -> bool:
    return bool(torch.allclose(got.double(), expected.double(), rtol=tolerance, atol=tolerance))


def check_linears(load: Callable[[], OpProvider]) -> None:
    """Each kernel that takes plain weights multiplies right, with and without bias, into a column slice too."""
    kernels = load().linear_kernels()
    tried = 0
    for kernel in kernels:
        for dtype in TOLERANCE:
            query = LinearQuery(None, OUT_FEATURES, IN_FEATURES, dtype, "cpu")
            if kernel.supports(query).ok:
                tried += 1
                _linear(kernel, query)
    if not tried:
        raise NotApplicable("it offers no kernels for plain weights on the CPU")


def _linear(kernel: Any, query: LinearQuery) -> None:
    kind = getattr(torch, query.dtype)
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(query.out_features, query.in_features, generator=generator).to(kind)
    bias = torch.randn(query.out_features, generator=generator).to(kind)
    x = torch.randn(max(ROWS), query.in_features, generator=generator).to(kind)
    packed = kernel.pack(QuantizedWeight(None, OUT_FEATURES, IN_FEATURES, {"weight": weight.clone()}))
    tolerance = TOLERANCE[query.dtype] * query.in_features**0.5
    for added in (None, bias):
        expected = x.double() @ weight.double().T + (0 if added is None else added.double())
        whole = _applied(kernel, packed, x, added)
        assert _near(whole, expected, tolerance), f"{kernel.name}, {query.dtype} is off"
        for rows in ROWS:
            same = torch.equal(_applied(kernel, packed, x[:rows], added), whole[:rows])
            assert same, f"{kernel.name}, {query.dtype}: a row's result depends on the other rows"
    looked_up = torch.zeros(3, query.in_features, dtype=kind)
    kernel.rows(packed, torch.tensor([0, 5, 5]), looked_up)
    assert _near(looked_up, weight[[0, 5, 5]], TOLERANCE[query.dtype]), f"{kernel.name}: rows() is off"


def _applied(kernel: Any, packed: Any, x: Tensor, bias: Tensor | None) -> Tensor:
    """The product, written into a column slice whose neighbours must stay as they are."""
    wide = torch.zeros(x.shape[0], OUT_FEATURES + 8, dtype=x.dtype)
    kernel.apply(LinearCall(wide[:, 4:-4], x, packed, bias))
    assert not wide[:, :4].any() and not wide[:, -4:].any(), f"{kernel.name} writes beside its columns"
    return wide[:, 4:-4].clone()
