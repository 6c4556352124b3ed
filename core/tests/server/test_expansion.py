"""From a call to engine requests: ids, seeds, bad words, lengths."""

from __future__ import annotations

import dataclasses

import pytest

from turret.config import ModelConfig
from turret.errors import RequestError
from turret.sampling import SamplingParams
from turret.server.expansion import Expander, Generation, derive_seed
from turret.server.lengths import Limits


def expand(tiny, expander, n=1, prompts=1, **params):
    job = Generation("id", tuple([1, 2] for _ in range(prompts)), SamplingParams(n=n, **params), (4,) * prompts)
    return expander.expand(job)


def test_seeds(tiny):
    expander, same, other = (Expander(seed, [0], tiny.text) for seed in (5, 5, 6))
    first, second = expand(tiny, expander, n=3), expand(tiny, expander)
    assert len({r.seed for r in [*first, *second]}) == 4, "requests without a seed each draw their own"
    assert [r.seed for r in expand(tiny, same, n=3)] == [r.seed for r in first], "a restart draws the same again"
    assert [r.seed for r in expand(tiny, other, n=3)] != [r.seed for r in first]
    named = expand(tiny, expander, n=3, seed=9)
    assert named[0].seed == 9 == expand(tiny, other, seed=9)[0].seed
    assert [r.seed for r in named] == [derive_seed(9, i) for i in range(3)]
    assert all(0 <= r.seed < 2**63 for r in named[1:])


def test_requests_are_in_choice_order_and_have_their_own_ids(tiny):
    expander = Expander(0, [7], tiny.text)
    requests = [*expand(tiny, expander, n=2, prompts=2), *expand(tiny, expander)]
    assert len({r.request_id for r in requests}) == 5 and all(r.request_id.startswith("id/") for r in requests)
    assert all(r.sampling.n == 1 and r.eos_token_ids == [7] for r in requests)


def test_bad_words_with_and_without_a_space(tiny):
    (request,) = expand(tiny, Expander(0, [], tiny.text), bad_words=["no"])
    encode = tiny.text.tokenizer.encode
    assert sorted(request.bad_words_ids) == sorted([encode("no"), encode(" no")])


@pytest.mark.parametrize(
    ("limits", "prompt", "wanted", "expected"),
    [
        (Limits(100), 40, None, 60),
        (Limits(100), 40, 60, 60),
        (Limits(100, fallback=7), 40, None, 7),
        (Limits(100, fallback=7), 40, 9, 9),
        (Limits(100, cap=7), 40, 9, 7),
        (Limits(100, cap=70), 40, None, 60),
        (Limits(100, kv_capacity=64), 40, None, 24),
        (Limits(100, kv_capacity=64), 40, 24, 24),
    ],
)
def test_limits(limits, prompt, wanted, expected):
    assert limits.resolve(prompt, wanted) == expected


@pytest.mark.parametrize(
    ("limits", "prompt", "wanted", "words"),
    [
        (Limits(100), 100, None, "the prompt has 100 tokens, but the context of this model is 100"),
        (Limits(100), 40, 61, "61, but the prompt of 40 tokens leaves 60 of the model's 100"),
        (Limits(100, kv_capacity=64), 40, 25, "need 65 tokens of KV cache, but this server has 64"),
        (Limits(100, kv_capacity=64), 64, None, "need 65"),
        (Limits(100), 0, None, "the prompt is empty"),
    ],
)
def test_what_does_not_fit_is_told_with_numbers(limits, prompt, wanted, words):
    with pytest.raises(RequestError, match=words):
        limits.resolve(prompt, wanted)


def test_a_limit_of_the_generation_config_is_a_default_unless_the_operator_chose_it(tiny):
    parts = dataclasses.replace(tiny.state.parts, generation_defaults={"max_new_tokens": 7})
    own = Limits.of(parts, ModelConfig())
    assert (own.fallback, own.cap) == (7, None)
    for chosen in (ModelConfig(generation_config="/a/folder"),
                   ModelConfig(override_generation_config={"max_new_tokens": 7})):  # fmt: skip
        assert (Limits.of(parts, chosen).fallback, Limits.of(parts, chosen).cap) == (None, 7)
