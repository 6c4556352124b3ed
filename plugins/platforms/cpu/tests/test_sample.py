"""The native op `sample` against the reference that sorts in float64, on every ISA level.

The two may differ where the uniform number, or top_p, lies within rounding of an edge: the kernel's weights are
float32. `near_an_edge` tells those cases, and only those are left out.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from turret.contracts import SampleFault, SampleOutcome, SampleRow
from turret.nn import ops_sample
from turret_platform_cpu.sampling import NativeSample

VOCABS = (1, 5, 63, 64, 65, 200, 2047, 2048, 2049, 9001, 20011)


@pytest.fixture
def sample(level, native):
    """The op at each ISA level."""
    op = NativeSample(native)
    return lambda logits, *rows: outcomes(op, logits, *rows)


def outcomes(op, logits: np.ndarray, *rows: SampleRow) -> list[SampleOutcome]:
    out: list[SampleOutcome] = []
    tensor = torch.from_numpy(np.array(np.broadcast_to(logits, (len(rows), logits.shape[-1]))))
    before = tensor.clone()
    op(out, tensor, rows)
    assert tensor.equal(before) or bool(before.isnan().any()), "rules are undone"
    return out


def reference(logits: np.ndarray, row: SampleRow) -> SampleOutcome:
    return outcomes(ops_sample.sample, logits, row)[0]


def near_an_edge(logits: np.ndarray, row: SampleRow) -> bool:
    """Whether a change of a millionth in `top_p` or `uniform` changes the answer."""
    close = 2e-6
    for p in {row.top_p, row.top_p - close, row.top_p + close} if row.top_p < 1 else {1.0}:
        for u in (row.uniform - close, row.uniform, row.uniform + close):
            other = replaced(row, top_p=p, uniform=min(max(u, 0.0), 1 - 1e-12))
            if reference(logits, other).token != reference(logits, row).token:
                return True
    return False


def replaced(row: SampleRow, **changes) -> SampleRow:
    return SampleRow(**{**{name: getattr(row, name) for name in SampleRow.__slots__}, **changes})


def made(seed: int, vocab: int, scale: float) -> np.ndarray:
    """Logits rounded coarsely or not at all, so that there are ties and edges of groups; some with minus infinity."""
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=vocab) * scale).round(1 if seed % 2 else 6).astype(np.float32)
    if seed % 3 == 0:
        x[rng.integers(0, vocab, vocab // 2)] = -np.inf
        x[rng.integers(0, vocab)] = 1.0
    return x


def rules(seed: int, vocab: int) -> dict:
    """Any of the rules, on a few ids."""
    rng = np.random.default_rng(seed)
    found: dict = {}
    if seed & 1:
        found["allowed"] = np.unique(rng.integers(0, vocab, vocab // 2 + 1))
    if seed & 2:
        found["banned"] = rng.integers(0, vocab, 3)
    if seed & 4:
        found["bias_ids"] = np.unique(rng.integers(0, vocab, 4))
        found["bias"] = rng.normal(size=found["bias_ids"].size).astype(np.float32) * 4
    if seed & 8:
        found["seen"] = np.unique(rng.integers(0, vocab, 9))
        found["counts"] = rng.integers(0, 3, found["seen"].size).astype(np.float64)
        found.update(repetition=1.3, presence=0.5, frequency=-0.25)
    if seed & 16:
        few = rng.integers(0, 2**32, vocab // 32 + 2) & rng.integers(0, 2**32, vocab // 32 + 2)
        found["mask"] = np.where(rng.integers(0, 4, few.size) == 0, 2**32 - 1, few).astype(np.uint32).view(np.int32)
    return found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    vocab=st.sampled_from(VOCABS), seed=st.integers(0, 1000), scale=st.sampled_from([0.0, 0.1, 1.0, 4.0, 30.0]),
    ruled=st.integers(0, 31), uniform=st.floats(0, 1, exclude_max=True),
    temperature=st.sampled_from([0.0, 0.05, 0.7, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 2, 7, 50, 4000]), top_p=st.sampled_from([1.0, 0.95, 0.6, 0.1, 0.001]),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]), logprobs=st.sampled_from([None, 0, 5, 30000]),
)  # fmt: skip
def test_outcomes_are_the_references(native, vocab, seed, scale, ruled, logprobs, **asked):
    x = made(seed, vocab, scale)
    row = SampleRow(logprobs=logprobs, **asked, **rules(ruled, vocab))
    expected = reference(x, row)
    assume(bool(expected.fault) or not near_an_edge(x, row))
    for level in native.levels():
        native.use_level(level)
        [got] = outcomes(NativeSample(native), x, row)
        assert (got.token, got.fault, got.rank) == (expected.token, expected.fault, expected.rank), level
        assert list(got.best_ids) == list(expected.best_ids)
        assert got.value == pytest.approx(expected.value, abs=2e-5)
        assert list(got.best_values) == pytest.approx(list(expected.best_values), abs=2e-5)


@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("asked", [{}, {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.05}, {"top_k": 5000, "top_p": 0.7}])
def test_shares_are_the_distribution(sample, scale, asked):
    """Uniform numbers spread evenly hit each token as often as it weighs: no token is lost at an edge of a block."""
    x = made(1, 6000, scale)
    uniform = (np.arange(600) + 0.5) / 600
    rows = [SampleRow(uniform=float(u), temperature=1.0, **asked) for u in uniform]
    expected = [outcome.token for outcome in outcomes(ops_sample.sample, x, *rows)]
    got = [outcome.token for outcome in sample(x, *rows)]
    assert sum(a != b for a, b in zip(got, expected, strict=True)) <= 6, "only on edges"


@pytest.mark.parametrize("temperature", [0.5, 1.0, 20.0])
@pytest.mark.parametrize("top_p", [0.999, 0.9, 0.5, 0.02])
def test_a_nucleus_of_much_of_the_vocabulary(sample, top_p, temperature):
    """Rows so long and so flat that a sample says where the threshold lies, with many ties or none."""
    for seed, digits in ((1, 1), (2, 6)):
        x = np.random.default_rng(seed).normal(size=40_003).round(digits).astype(np.float32)
        x[7::9] = -np.inf
        uniform = (np.arange(60) + 0.5) / 60
        rows = [SampleRow(uniform=float(u), temperature=temperature, top_p=top_p) for u in uniform]
        expected = [outcome.token for outcome in outcomes(ops_sample.sample, x, *rows)]
        got = [outcome.token for outcome in sample(x, *rows)]
        assert sum(a != b for a, b in zip(got, expected, strict=True)) <= 1, "only on edges"


def test_a_sample_that_misleads_is_not_believed(sample):
    """Most of the weight lies where no sample looks: in groups between those that are."""
    x = np.random.default_rng(3).normal(size=65_536).astype(np.float32)
    x[64 * np.arange(4, 1024, 8)[:, None] + np.arange(64)] += 2.5
    rows = [SampleRow(uniform=float(u), temperature=1.0, top_p=0.8) for u in (np.arange(40) + 0.5) / 40]
    expected = [outcome.token for outcome in outcomes(ops_sample.sample, x, *rows)]
    got = [outcome.token for outcome in sample(x, *rows)]
    assert sum(a != b for a, b in zip(got, expected, strict=True)) <= 1, "only on edges"


def test_a_row_does_not_depend_on_others_or_on_threads(sample, native):
    vocab = 5000
    x = np.stack([made(seed, vocab, 2.0) for seed in range(12)])
    rows = [
        SampleRow(uniform=0.07 * i, temperature=0.3 * (i % 4), top_k=(0, 30)[i % 2], top_p=(1.0, 0.9)[i // 2 % 2],
                  logprobs=(None, 3)[i % 2], **rules(i + 8, vocab))
        for i in range(12)
    ]  # fmt: skip
    together = []
    for count in (1, 2, 3):
        native.start(count, ())
        together.append(sample(x, *rows))
    assert together[0] == together[1] == together[2]
    assert [sample(x[i], row)[0] for i, row in enumerate(rows)] == together[0]


@pytest.mark.parametrize("place", [0, 17, 63, 64, 200])
def test_numbers_that_are_none_are_refused(sample, place):
    x = made(1, 201, 1.0)
    for value, fault in (
        (np.nan, SampleFault.NOT_A_NUMBER), (-np.nan, SampleFault.NOT_A_NUMBER), (np.inf, SampleFault.INFINITE),
    ):  # fmt: skip
        bad = x.copy()
        bad[place] = value
        assert [o.fault for o in sample(bad, SampleRow(), SampleRow(temperature=1.0, top_p=0.5))] == [fault, fault]
    nothing = np.full(201, -np.inf, dtype=np.float32)
    assert sample(nothing, SampleRow(temperature=1.0))[0].fault is SampleFault.ALL_MINUS_INFINITY
    forbidden = SampleRow(allowed=np.array([place]), banned=np.array([place]), logprobs=2)
    assert sample(x, forbidden)[0].fault is SampleFault.NOTHING_LEFT


def test_zeros_of_either_sign_are_ties(sample):
    x = np.array([-1.0, -0.0, 0.0, -0.0], dtype=np.float32)
    assert sample(x, SampleRow())[0].token == 1
    kept = {sample(x, SampleRow(uniform=u, temperature=1.0, top_k=2))[0].token for u in (0.1, 0.4, 0.6, 0.9)}
    assert kept == {1, 2}


def test_a_mask_that_leaves_nothing_says_so(sample):
    x = made(1, 100, 1.0)
    [nothing] = sample(x, SampleRow(mask=np.zeros(4, dtype=np.int32)))
    assert nothing.fault == SampleFault.NOTHING_LEFT
    one = np.zeros(5, dtype=np.int32)
    one[[2, 3]] = 1 << 7, 1 << 5  # token 71; token 101 is beyond the vocabulary
    found = sample(x, SampleRow(mask=one), SampleRow(mask=one, temperature=1.0))
    assert [outcome.token for outcome in found] == [71, 71]
