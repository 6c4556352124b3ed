"""Budgets for reasoning: exact, the same after a preemption, in any batch, whatever else is asked for."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from turret.messages import Request, ThinkingBudget
from turret.nn.ops_sample import sample as reference_sample
from turret.sampling import SamplingParams
from turret.worker.local import LocalWorker
from turret.worker.sampler import Sampler
from turret.worker.sampling_rows import SamplingRows
from turret.worker.thinking import ThinkingRow

VOCAB, START, END = 40, 30, 31
CLOSED = ThinkingBudget(tokens=3, force=[END], ends=[[END]], starts=[[START]])
OPEN = ThinkingBudget(tokens=3, force=[END], ends=[[END]], starts=[[START]], begun=True)


def run(budget: ThinkingBudget, says: list[int]) -> list[int]:
    """What comes out where a model would say `says`, a forced token taking the place of its next one."""
    row, out = ThinkingRow(budget), []
    for token in says:
        out.append(token if row.forced is None else row.forced)
        row.append(out[-1])
    return out


@pytest.mark.parametrize(
    ("budget", "says", "comes"),
    [
        (OPEN, [1, 2, 3, 4, 5, 6], [1, 2, 3, END, 5, 6]),
        (OPEN, [1, 2, END, 4, 5, 6], [1, 2, END, 4, 5, 6]),  # the model's own end counts
        (OPEN, [1, 2, 3, END, 5], [1, 2, 3, END, 5]),
        (OPEN, [START, 1, 2, 3, 4, 5], [START, 1, 2, 3, END, 5]),  # it repeats what the prompt holds
        (CLOSED, [START, 1, 2, 3, 4, 5], [START, 1, 2, 3, END, 5]),
        (CLOSED, [9, START, 1, 2, 3, 4, 5], [9, START, 1, 2, 3, END, 5]),
        (CLOSED, [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]),  # it does not reason
        (CLOSED, [*range(9), 9, START, 1, 2, 3, 4], [*range(9), 9, START, 1, 2, 3, 4]),  # that start is text
        (OPEN, [1, 2, 3, 4, START, 6, 7, 8, 9], [1, 2, 3, END, START, 6, 7, 8, 9]),
    ],
)
def test_where_the_end_comes(budget, says, comes):
    assert run(budget, says) == comes


def test_none_at_all():
    none = {"tokens": 0, "force": [END], "ends": [[END]], "starts": [[START]]}
    assert run(ThinkingBudget(**none, begun=True), [1, 2, 3]) == [END, 2, 3]
    assert run(ThinkingBudget(**none), [START, 1, 2]) == [START, END, 2]


def test_an_end_of_several_tokens_and_reasoning_that_comes_back():
    """Marks of several tokens; all reasoning of an answer counts together; of an end that has begun, the rest comes."""
    budget = ThinkingBudget(
        tokens=4, force=[20, 21, 22], ends=[[20]], starts=[[25, 26]], begun=True, again=True
    )
    assert run(budget, [1, 2, 3, 4, 5, 6, 7, 8]) == [1, 2, 3, 4, 20, 21, 22, 8]
    assert run(budget, [1, 20, 9, 25, 26, 2, 3, 4, 5, 6, 7, 8]) == [1, 20, 9, 25, 26, 2, 3, 4, 20, 21, 22, 8]
    assert run(budget, [1, 2, 3, 4, 5, 6, 7, 8, 25, 26, 1, 2, 3, 4]) == [
        1, 2, 3, 4, 20, 21, 22, 8, 25, 26, 20, 21, 22, 4,
    ]  # fmt: skip
    long_end = ThinkingBudget(tokens=2, force=[20, 21], ends=[[20, 21]], begun=True)
    assert run(long_end, [1, 20, 5, 6]) == [1, 20, 21, 6]


TOKENS = st.lists(st.sampled_from([1, 2, 3, START, END, 20, 21, 25, 26]), min_size=1, max_size=40)
BUDGETS = st.builds(
    ThinkingBudget,
    tokens=st.integers(0, 6), force=st.sampled_from([[END], [20, 21], [END, 25, 26]]),
    ends=st.sampled_from([[[END]], [[20, 21]], [[END], [20]]]), starts=st.sampled_from([[], [[START]], [[25, 26]]]),
    begun=st.booleans(), again=st.booleans(),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(budget=BUDGETS, says=TOKENS)
def test_it_is_the_same_after_a_preemption(budget, says):
    """A row that is made anew from what was generated asks for the same next token, at every place."""
    row, out = ThinkingRow(budget), []
    for token in says:
        assert ThinkingRow(budget, out).forced == row.forced
        out.append(token if row.forced is None else row.forced)
        row.append(out[-1])


def asking(budget, **sampling):
    return Request(
        request_id="r", prompt_token_ids=[1, 2], sampling=SamplingParams(max_tokens=None, **sampling), max_tokens=64,
        seed=7, thinking=budget,
    )


@pytest.mark.parametrize("op", [None, reference_sample])
@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0}, {"temperature": 1.0, "top_k": 5, "top_p": 0.9}, {"temperature": 0.0, "logprobs": 2},
        {"temperature": 1.0, "allowed_token_ids": [1, 2, 3]},
        {"temperature": 1.0, "logprobs": 0, "logit_bias": {END: -100}},
        {"temperature": 0.7, "repetition_penalty": 1.5, "min_p": 0.1},
    ],
)  # fmt: skip
def test_the_sampler_obeys(op, sampling):
    """The forced token comes whatever the rules and filters say, and tells the model's own log-probability."""
    sampler, rows = Sampler(VOCAB, op=op), SamplingRows(2, VOCAB)
    rows.set(0, asking(OPEN, **sampling))
    rows.set(1, asking(None, **sampling))  # a neighbour without a budget
    out = []
    for step in range(6):
        logits = np.random.default_rng(step).normal(size=(2, VOCAB)).astype(np.float32)
        logits[:, [START, END]] = -9.0
        first, _ = sampler.sample(logits, np.array([0, 1]), rows)
        alone = SamplingRows(1, VOCAB)
        alone.set(0, asking(OPEN, **sampling), out)
        assert sampler.sample(logits[:1], np.array([0]), alone)[0] == first
        if step == 3:
            assert first.token == END
            if "logprobs" in sampling:
                expected = logits[0, END] - np.log(np.exp(logits[0].astype(np.float64)).sum())
                assert first.logprobs is not None and first.logprobs.logprob == pytest.approx(expected, abs=1e-4)
        else:
            assert first.token != END
        out.append(first.token)
        rows.append([0], [first.token])


def test_a_worker_one_step_ahead():
    """Through a real worker, planned ahead, alone and beside others."""
    one = tiny.request("a", [3, 4, 5], temperature=0.0)
    free = _driven([one])["a"]
    end = next(token for token in range(20) if token not in free)
    budget = ThinkingBudget(tokens=4, force=[end, end], ends=[[end]], begun=True)
    bounded = tiny.request("b", [3, 4, 5], temperature=0.0)
    bounded = msgspec.structs.replace(bounded, thinking=budget)
    alone, together = _driven([bounded])["b"], _driven([one, bounded])
    assert alone[:6] == [*free[:4], end, end]
    assert together["b"] == alone and together["a"] == free


def _driven(requests):
    worker = LocalWorker(tiny.parts(), tiny.dummy_source(), tiny.limits())
    try:
        return tiny.Driver(worker, depth=2).run(requests, 10)
    finally:
        worker.shutdown()
