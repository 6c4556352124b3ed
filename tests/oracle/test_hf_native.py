"""Every decoder family on the CPU platform's kernels: transformers' logits, and the same bits however work is cut and
whether the forward runs op by op or as one recorded program."""

from __future__ import annotations

import pytest
import torch
from hf_pairs import Case, Pair, Parts, close, make_pair, tokens
from test_hf_logits import CASES

from turret.nn import OpTable
from turret_platform_cpu.attention import CPUAttention
from turret_platform_cpu.platform import CPUPlatform

torch.set_num_threads(1)

PROVIDER, RECORDER = CPUPlatform().ops(), CPUPlatform().graphs()
A, B = tokens(11, 41), tokens(12, 33)

pytestmark = pytest.mark.skipif(PROVIDER is None, reason="the native library was not built")


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.label)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case: Case = request.param
    assert PROVIDER is not None
    parts = Parts(OpTable.resolve([PROVIDER]), CPUAttention(), block_size=16)
    return make_pair(case, tmp_path_factory.mktemp(case.label), parts=parts)


def in_chunks(pair: Pair) -> torch.Tensor:
    """Logits of A, in chunks beside B, then alone token by token."""
    driver = pair.driver
    steps = [{"a": A[:19]}, {"a": A[19:37], "b": B[:30]}, {"a": A[37:38], "b": B[30:31]}]
    steps += [{"a": [token]} for token in A[38:]]
    rows = [driver.step(work)["a"] for work in steps]
    driver.drop("a")
    driver.drop("b")
    return torch.cat(rows)


@torch.inference_mode()
def test_logits_and_bits(pair: Pair) -> None:
    whole = pair.driver.step({"a": A})["a"]
    pair.driver.drop("a")
    close(whole, pair.expected(A))
    assert torch.equal(in_chunks(pair), whole)


@torch.inference_mode()
@pytest.mark.parametrize("recorded_tokens", [2, 41])
def test_a_recording_gives_the_same_bits(pair: Pair, recorded_tokens: int) -> None:
    driver = pair.driver
    whole = driver.step({"a": A})["a"]
    driver.drop("a")
    driver.record_with(RECORDER)
    try:
        driver.step({"c": A[:recorded_tokens]})
        driver.drop("c")
        assert torch.equal(in_chunks(pair), whole)
        again = driver.step({"a": A})["a"]
        driver.drop("a")
        assert torch.equal(again, whole)
    finally:
        driver.record_with(None)
