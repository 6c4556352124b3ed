"""Reference ops of a mixture of experts, against loops over tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from turret.contracts.ops import MoECall, Routing
from turret.nn.ops_moe import moe, route

TOKENS, EXPERTS, COUNT, HIDDEN = 23, 5, 2, 16


def made_experts(seen: list[int]) -> list:
    weights = torch.randn(EXPERTS, HIDDEN, HIDDEN, generator=torch.Generator().manual_seed(1))

    def expert(number: int):
        def run(out: Tensor, x: Tensor) -> None:
            seen.append(len(x))
            for row in range(len(x)):  # a product of many rows need not have the bits of one
                out[row] = weights[number] @ x[row]

        return run

    return [expert(number) for number in range(EXPERTS)]


def mixed(x: Tensor, weights: Tensor, ids: Tensor, seen: list[int]) -> Tensor:
    rows, count = ids.shape
    out = torch.full((rows, HIDDEN), float("nan"))
    scratch = torch.empty(rows * count, HIDDEN), torch.empty(rows * count, HIDDEN)
    moe(MoECall(out, x, weights, ids, made_experts(seen), *scratch))
    return out


def test_each_token_gets_its_experts_once_and_no_token_touches_another() -> None:
    generator = torch.Generator().manual_seed(0)
    x, logits = torch.randn(TOKENS, HIDDEN, generator=generator), torch.randn(TOKENS, EXPERTS, generator=generator)
    logits[:, 3] = -100.0  # nobody chooses this one
    weights, ids = torch.empty(TOKENS, COUNT), torch.empty(TOKENS, COUNT, dtype=torch.int64)
    route(weights, ids, logits, None, Routing())
    seen: list[int] = []
    out = mixed(x, weights, ids, seen)
    assert sum(seen) == TOKENS * COUNT and len(seen) == EXPERTS - 1
    for token in range(TOKENS):
        alone = mixed(x[token : token + 1], weights[token : token + 1], ids[token : token + 1], [])
        assert torch.equal(alone[0], out[token])
        results = [torch.empty(1, HIDDEN) for _ in range(COUNT)]
        for result, expert in zip(results, ids[token].tolist(), strict=True):
            made_experts([])[expert](result, x[token : token + 1])
        expected = sum(w * r[0] for w, r in zip(weights[token], results, strict=True))
        assert torch.allclose(out[token], expected, atol=1e-6)


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_a_bias_chooses_and_never_weighs(scoring: str) -> None:
    logits, bias = torch.tensor([[0.0, 1.0, 2.0, 3.0]]), torch.tensor([9.0, 0.0, 0.0, 0.0])
    weights, ids = torch.empty(1, 2), torch.empty(1, 2, dtype=torch.int64)
    route(weights, ids, logits, bias, Routing(scoring, renormalise=False, scale=2.0))
    scores = logits.softmax(-1) if scoring == "softmax" else logits.sigmoid()
    assert ids.tolist() == [[0, 3]] and torch.allclose(weights, 2 * scores[:, [0, 3]])
    route(weights, ids, logits, None, Routing(scoring))
    assert ids.tolist() == [[3, 2]] and float(weights.sum()) == pytest.approx(1.0)
