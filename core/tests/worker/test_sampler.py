"""The sampler against an oracle that sorts everything in float64, and its promise of row independence.

The first part is the oracle: the same rules, one short function each, in plain numpy.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from turret.messages import Request
from turret.nn.ops_sample import sample as reference_sample
from turret.sampling import SamplingParams
from turret.worker.randomness import uniform
from turret.worker.sampler import Sampler
from turret.worker.sampling_rows import SamplingRows


def make_request(prompt=(1, 2, 3), seed=7, eos=(), stop=(), bad=(), **sampling) -> Request:
    sampling.setdefault("temperature", 1.0)
    return Request(
        request_id="r", prompt_token_ids=list(prompt), sampling=SamplingParams(max_tokens=None, **sampling),
        max_tokens=64, seed=seed, eos_token_ids=list(eos), stop_token_ids=list(stop),
        bad_words_ids=[list(b) for b in bad],
    )


def apply_rules(logits: np.ndarray, request: Request, outputs: list[int]) -> np.ndarray:
    """Logits after allowed ids, bad words, minimum length, bias and penalties."""
    x = logits.astype(np.float64)
    s = request.sampling
    if s.allowed_token_ids is not None:
        for token in range(x.size):
            if token not in s.allowed_token_ids:
                x[token] = -np.inf
    for word in request.bad_words_ids:
        prefix, last = word[:-1], word[-1]
        if not prefix or outputs[-len(prefix):] == prefix:
            x[last] = -np.inf
    if len(outputs) < s.min_tokens:
        for token in [*request.eos_token_ids, *request.stop_token_ids]:
            x[token] = -np.inf
    for token, bias in (s.logit_bias or {}).items():
        x[token] += bias
    for token in set(request.prompt_token_ids) | set(outputs):
        x[token] = x[token] / s.repetition_penalty if x[token] > 0 else x[token] * s.repetition_penalty
    for token in set(outputs):
        x[token] -= s.presence_penalty + s.frequency_penalty * outputs.count(token)
    return x


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def filtered(x: np.ndarray, s: SamplingParams) -> np.ndarray:
    """Probabilities after temperature, min-p, top-k and top-p; ties go to the lower id."""
    p = softmax(x / s.temperature)
    p = np.where(p >= s.min_p * p.max() * (1 - 1e-12), p, 0.0)
    order = sorted(range(p.size), key=lambda i: (-x[i], i))
    if s.top_k:
        p[order[s.top_k:]] = 0.0
    p /= p.sum()
    total = 0.0
    for token in order:
        if total >= s.top_p:
            p[token] = 0.0
        total += p[token]
    return p / p.sum()


def choose(p: np.ndarray, u: float) -> int:
    return int(np.searchsorted(np.cumsum(p), u, side="right"))


def nearest_edge(p: np.ndarray, u: float) -> float:
    """How far `u` lies from a place where the choice changes: closer than rounding, either answer is right."""
    return float(np.abs(np.cumsum(p) - u).min())


def nearest_nucleus_edge(x: np.ndarray, s: SamplingParams) -> float:
    """How far `top_p` lies from a sum of most likely tokens: on it, the last bit decides whether one more is kept."""
    p = np.sort(filtered(x, s.replace(top_p=1.0)))[::-1]
    return float(np.abs(np.cumsum(p[p > 0]) - s.top_p).min()) if s.top_p < 1 else 1.0


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def sample(logits: np.ndarray, *requests: Request, outputs: list[int] | None = None, mode: str = "raw_logprobs"):
    """Sample row i of `logits` for `requests[i]`."""
    rows = SamplingRows(len(requests))
    for i, request in enumerate(requests):
        rows.set(i, request, outputs or [])
    sampler = Sampler(logits.shape[1], mode)
    return sampler.sample(np.ascontiguousarray(logits, dtype=np.float32), np.arange(len(requests)), rows)


def random_logits(seed: int, vocab: int, scale: float = 4.0) -> np.ndarray:
    """Logits rounded coarsely, so that ties happen."""
    return (np.random.default_rng(seed).normal(size=vocab) * scale).round(1).astype(np.float32)


VOCABS = st.sampled_from([5, 63, 64, 200, 3000, 9001, 20011])


@settings(max_examples=150, deadline=None)
@given(
    vocab=VOCABS, seed=st.integers(-(2**63), 2**63 - 1), logits_seed=st.integers(0, 1000),
    temperature=st.floats(0.05, 3), top_k=st.sampled_from([0, 1, 2, 7, 50, 4000]),
    top_p=st.sampled_from([1.0, 0.95, 0.6, 0.1, 0.001]), min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    scale=st.sampled_from([0.1, 1.0, 4.0]), num_outputs=st.integers(0, 5),
)
def test_choice_matches_reference(vocab, seed, logits_seed, temperature, top_k, top_p, min_p, scale, num_outputs):
    logits = random_logits(logits_seed, vocab, scale)
    outputs = [1] * num_outputs
    request = make_request(seed=seed, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    p = filtered(logits.astype(np.float64), request.sampling)
    u = uniform(seed, num_outputs)
    assume(nearest_edge(p, u) > 1e-5 and nearest_nucleus_edge(logits.astype(np.float64), request.sampling) > 1e-6)
    [got] = sample(logits[None], request, outputs=outputs)
    assert got.token == choose(p, u)


TOKENS = st.integers(0, 29)


@settings(max_examples=200, deadline=None)
@given(
    prompt=st.lists(TOKENS, min_size=1, max_size=8), outputs=st.lists(TOKENS, max_size=8),
    repetition=st.sampled_from([1.0, 1.3, 0.7]), presence=st.sampled_from([0.0, 0.5, -1.0]),
    frequency=st.sampled_from([0.0, 0.7]), bias=st.dictionaries(TOKENS, st.floats(-50, 50), max_size=3),
    allowed=st.none() | st.lists(TOKENS, min_size=8, max_size=20),
    bad=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), max_size=3),
    min_tokens=st.integers(0, 10), eos=st.lists(TOKENS, max_size=2), stop=st.lists(TOKENS, max_size=2),
)
def test_rules_match_reference(
    prompt, outputs, repetition, presence, frequency, bias, allowed, bad, min_tokens, eos, stop
):
    logits = random_logits(len(prompt) * 31 + len(outputs), 30, 3.0)
    request = make_request(
        prompt, eos=eos, stop=stop, bad=bad, temperature=0.0, repetition_penalty=repetition,
        presence_penalty=presence, frequency_penalty=frequency, logit_bias=bias or None,
        allowed_token_ids=allowed, min_tokens=min_tokens, logprobs=-1,
    )
    want = apply_rules(logits, request, outputs)
    [got] = sample(logits[None], request, outputs=outputs, mode="processed_logits")
    if want.max() == -np.inf:
        assert got.token is None and "no token to choose from" in got.error
        return
    seen = dict(zip(got.logprobs.top_ids, got.logprobs.top_logprobs, strict=True))
    finite = [i for i in range(30) if np.isfinite(want[i])]
    assert sorted(seen) == finite
    np.testing.assert_allclose([seen[i] for i in finite], want[finite], rtol=1e-5, atol=1e-5)
    assert want[got.token] == pytest.approx(want.max(), abs=1e-5)


def test_rules_follow_appended_tokens():
    """Tokens noted one by one act as tokens known from the start (a request that comes back after preemption)."""
    request = make_request([1, 1, 4], eos=[9], bad=[[2, 3]], min_tokens=3, repetition_penalty=1.5,
                           frequency_penalty=0.5, presence_penalty=0.25, logprobs=-1)
    logits = random_logits(3, 80)
    rows = SamplingRows(2)
    rows.set(0, request)
    sampler = Sampler(80, "processed_logits")
    for token in [2, 5, 2, 2, 7]:
        rows.append([0], [token])
    rows.set(1, request, [2, 5, 2, 2, 7])
    one, two = sampler.sample(np.stack([logits, logits]), np.arange(2), rows)
    assert one == two
    assert 3 not in sampler.sample(np.stack([logits]), np.array([0]), _with(rows, 2))[0].logprobs.top_ids


def _with(rows: SamplingRows, token: int) -> SamplingRows:
    rows.append([0], [token])
    return rows


def test_greedy_takes_the_first_of_equal_tokens():
    logits = np.zeros((2, 300), dtype=np.float32)
    logits[0, [17, 200]] = 3.0
    logits[1, [299, 5]] = 3.0
    plain = sample(logits, make_request(temperature=0.0), make_request(temperature=0.0))
    slow = sample(logits, make_request(temperature=0.0, logprobs=0), make_request(temperature=0.0, logprobs=0))
    assert [s.token for s in plain] == [s.token for s in slow] == [17, 5]


@pytest.mark.parametrize("vocab", [50, 2048, 5000])
def test_temperature_sampling_follows_the_distribution(vocab):
    """Chi-square over many seeds; cells with small expectation are pooled."""
    logits = random_logits(11, vocab, 2.0)
    p = softmax(logits.astype(np.float64) / 0.8)
    draws = 6000
    requests = [make_request(seed=seed, temperature=0.8) for seed in range(draws)]
    rows = SamplingRows(1)
    sampler, counts = Sampler(vocab), np.zeros(vocab)
    for request in requests:
        rows.set(0, request)
        counts[sampler.sample(logits[None], np.array([0]), rows)[0].token] += 1
    big = p * draws >= 10
    cells = np.append(counts[big], counts[~big].sum())
    expected = np.append(p[big], p[~big].sum()) * draws
    keep = expected > 0
    statistic = float((((cells - expected) ** 2)[keep] / expected[keep]).sum())
    freedom = int(keep.sum()) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


def test_successive_tokens_of_one_seed_are_independent_and_uniform():
    draws = np.array([uniform(1234, i) for i in range(20000)])
    assert ((draws >= 0) & (draws < 1)).all()
    counts = np.histogram2d(draws[:-1], draws[1:], bins=10, range=[[0, 1], [0, 1]])[0]
    expected = (len(draws) - 1) / 100
    assert float(((counts - expected) ** 2 / expected).sum()) < 99 + 5 * math.sqrt(2 * 99)
    firsts = np.array([uniform(seed, 0) for seed in range(20000)])
    counts = np.histogram2d(firsts[:-1], firsts[1:], bins=10, range=[[0, 1], [0, 1]])[0]
    assert float(((counts - expected) ** 2 / expected).sum()) < 99 + 5 * math.sqrt(2 * 99)


MIXED = [
    {"temperature": 1.3}, {"temperature": 0.0}, {"top_k": 40, "top_p": 0.9}, {"top_p": 0.95, "logprobs": 3},
    {"min_p": 0.05, "repetition_penalty": 1.2}, {"temperature": 0.0, "logprobs": 5, "frequency_penalty": 0.3},
    {"allowed_token_ids": [3, 70, 900, 4000], "logprobs": 0}, {"top_k": 3000, "logit_bias": {5: 3.0}},
]


@pytest.mark.parametrize("vocab", [4999, 49152])
def test_a_row_is_bitwise_the_same_in_any_batch(vocab):
    """Alone, in every row of a larger batch, and at any offset in memory: same token, same bits of log-probability."""
    logits = np.stack([random_logits(i, vocab) for i in range(len(MIXED))])
    requests = [make_request(seed=100 + i, **kind) for i, kind in enumerate(MIXED)]
    alone = [sample(logits[i : i + 1], request)[0] for i, request in enumerate(requests)]
    assert sample(logits, *requests) == alone
    order = np.random.default_rng(0).permutation(len(MIXED))
    shuffled = sample(logits[order], *[requests[i] for i in order])
    assert shuffled == [alone[i] for i in order]
    shifted = np.empty(logits.size + 3, dtype=np.float32)[3:].reshape(logits.shape)
    shifted[:] = logits
    rows = SamplingRows(len(MIXED))
    for i, request in enumerate(requests):
        rows.set(i, request)
    assert Sampler(vocab).sample(shifted, np.arange(len(MIXED)), rows) == alone


@pytest.mark.parametrize("num_outputs", [0, 3])
def test_a_providers_op_says_the_same(num_outputs):
    """Through the op `sample` (here its reference) every request gets what it gets without; what the op does not report
    goes the other way within the same batch."""
    kinds = [
        *MIXED, {"logprobs": -1, "top_k": 9}, {"logprob_token_ids": [5, 9], "logprobs": 2}, {"presence_penalty": 1.5},
        {"min_tokens": 2}, {"bad_words_ids": 1}, {"top_p": 0.3, "logit_bias": {7: -90.0, 2: 4.0}, "logprobs": 2},
    ]  # fmt: skip
    outputs, vocab = [7, 12, 7][:num_outputs], 5000
    requests = []
    for i, kind in enumerate(kinds):
        bad = [[40], [12, 7, 3]] if kind.pop("bad_words_ids", 0) else ()
        requests.append(make_request([4, 900], seed=i, eos=[11], stop=[12, 6000], bad=bad, **kind))
    logits = np.stack([random_logits(50 + i, vocab) for i in range(len(kinds) + 2)])
    logits[-1, 9], logits[-2, 3] = np.nan, np.inf
    requests += [make_request(top_p=0.5), make_request(logprobs=1)]
    rows = SamplingRows(len(requests))
    for i, request in enumerate(requests):
        rows.set(i, request, outputs)
    numbers = np.arange(len(requests))
    expected = Sampler(vocab).sample(logits, numbers, rows)
    calls = []

    def op(out, tensor, asked):
        calls.append(len(asked))
        reference_sample(out, tensor, asked)

    got = Sampler(vocab, op=op).sample(logits, numbers, rows)
    assert calls == [len(requests) - 2], "all but the row with every token and the one with chosen tokens"
    for mine, theirs in zip(got, expected, strict=True):
        assert (mine.token, mine.error) == (theirs.token, theirs.error)
        if theirs.logprobs is not None:
            assert mine.logprobs.rank == theirs.logprobs.rank
            assert mine.logprobs.top_ids == theirs.logprobs.top_ids
            assert mine.logprobs.logprob == pytest.approx(theirs.logprobs.logprob, abs=1e-5)


@pytest.mark.parametrize("mode", ["raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"])
@pytest.mark.parametrize("kind", [{"temperature": 0.0}, {"temperature": 0.7, "top_k": 5}, {"temperature": 2.0}])
def test_logprobs_modes(mode, kind):
    logits = random_logits(5, 700)
    request = make_request([4, 9], repetition_penalty=1.4, logprobs=6, **kind)
    values = logits.astype(np.float64)
    if mode.startswith("processed"):
        values = apply_rules(logits, request, [])
        if not request.sampling.greedy:
            kept = filtered(values, request.sampling) > 0
            values = np.where(kept, values / request.sampling.temperature, -np.inf)
    values = log_softmax(values) if mode.endswith("logprobs") else values
    [got] = sample(logits[None], request, mode=mode)
    order = sorted((i for i in range(700) if np.isfinite(values[i])), key=lambda i: (-np.float32(values[i]), i))
    assert got.logprobs.top_ids == order[:6]
    assert got.logprobs.token_id == got.token
    assert got.logprobs.rank == 1 + int((values > values[got.token] + 1e-6).sum())
    np.testing.assert_allclose(got.logprobs.top_logprobs, values[order[:6]], atol=2e-6, rtol=1e-5)
    assert got.logprobs.logprob == pytest.approx(values[got.token], abs=2e-6, rel=1e-5)


def test_chosen_tokens_are_reported_in_their_order():
    logits = random_logits(5, 700)
    [got] = sample(logits[None], make_request(temperature=0.0, logprobs=1, logprob_token_ids=[600, 3, 77]))
    want = log_softmax(logits.astype(np.float64))
    assert got.logprobs.top_ids == [600, 3, 77]
    assert got.logprobs.top_logprobs == pytest.approx(want[[600, 3, 77]], abs=2e-6)
    assert got.logprobs.rank == 1 and got.token == int(logits.argmax())


def test_prompt_logprobs_match_reference():
    logits = np.stack([random_logits(i, 1000) for i in range(4)])
    tokens = [3, 999, 0, 512]
    got = Sampler(1000).prompt_logprobs(logits, tokens, 2)
    for row, token, entry in zip(logits, tokens, got, strict=True):
        want = log_softmax(row)
        assert (entry.token_id, entry.rank) == (token, 1 + int((row > row[token]).sum()))
        assert entry.logprob == pytest.approx(want[token], abs=2e-6)
        assert entry.top_ids == sorted(range(1000), key=lambda i: (-row[i], i))[:2]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", [{"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.0, "logprobs": 1}])
def test_broken_logits_fail_their_own_request_only(bad, kind):
    logits = np.stack([random_logits(i, 500) for i in range(3)])
    clean = sample(logits, *[make_request(seed=i, **kind) for i in range(3)])
    logits[1, 77] = bad
    got = sample(logits, *[make_request(seed=i, **kind) for i in range(3)])
    assert got[1].token is None and "logits" in got[1].error
    assert (got[0], got[2]) == (clean[0], clean[2])


def test_extreme_logits_give_a_token():
    """Masked vocabulary padding and a huge spread neither warn nor fail."""
    logits = np.full((1, 400), -np.inf, dtype=np.float32)
    logits[0, :3] = [3e38, -3e38, 0.0]
    for kind in ({"temperature": 0.01}, {"top_p": 0.5}, {"top_k": 300}, {"min_p": 0.1}, {"temperature": 0.0}):
        assert sample(logits, make_request(**kind))[0].token == 0
