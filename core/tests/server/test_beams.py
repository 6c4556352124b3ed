"""Beam search: what it finds is what trying everything finds, and stopping early changes nothing."""

from __future__ import annotations

import itertools
import math
import random

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turret.messages import FinishReason, TokenLogprobs
from turret.server.beams import Beam, BeamRules, BeamSearch

VOCAB = 3
END = 0


def thought(seed: int, prefix: tuple[int, ...], vocab: int = VOCAB) -> TokenLogprobs:
    """What a made-up model thinks after `prefix`: the same each time it is asked."""
    source = random.Random(f"{seed}/{prefix}")
    weights = [source.random() + 0.01 for _ in range(vocab)]
    logprobs = sorted(((math.log(w / sum(weights)), i) for i, w in enumerate(weights)), reverse=True)
    ids, values = [i for _, i in logprobs], [p for p, _ in logprobs]
    return TokenLogprobs(ids[0], values[0], 1, ids, values)


def run(seed: int, rules: BeamRules, search: BeamSearch | None = None, vocab: int = VOCAB) -> list[Beam]:
    search = search or BeamSearch(rules)
    while search.live:
        search.advance([thought(seed, tuple(beam.token_ids), vocab) for beam in search.live])
    return search.best


def everything(seed: int, rules: BeamRules) -> list[tuple[float, list[int]]]:
    """Every sequence the model can end with, by score."""
    found = []
    for length in range(1, rules.max_tokens + 1):
        for tokens in itertools.product(range(VOCAB), repeat=length):
            ends = tokens[-1] in rules.ends
            if any(t in rules.ends for t in tokens[:-1]) or not (ends or length == rules.max_tokens):
                continue
            if ends and length <= rules.min_tokens:
                continue
            total = 0.0
            for at, token in enumerate(tokens):
                known = thought(seed, tokens[:at])
                total += known.top_logprobs[known.top_ids.index(token)]
            found.append((total / length**rules.length_penalty, list(tokens)))
    return sorted(found, key=lambda pair: -pair[0])


@pytest.mark.parametrize("penalty", [1.0, 0.0, 2.0, -1.0])
@pytest.mark.parametrize("min_tokens", [0, 2])
def test_a_search_wide_enough_finds_the_best_there_are(penalty: float, min_tokens: int) -> None:
    rules = BeamRules(27, penalty, 4, min_tokens, frozenset({END}))
    for seed in range(5):
        best = run(seed, rules)
        expected = everything(seed, rules)[: len(best)]
        assert [beam.token_ids for beam in best] == [tokens for _, tokens in expected]
        assert [beam.score(penalty) for beam in best] == pytest.approx([score for score, _ in expected])
        assert all((beam.finish_reason is FinishReason.STOP) == (beam.token_ids[-1] == END) for beam in best)


class Patient(BeamSearch):
    """A search that never believes that nothing better can come."""

    def _best_to_come(self) -> float:
        return math.inf


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([-1.0, 0.0, 0.7, 1.0, 3.0]), st.integers(1, 9))
def test_stopping_early_changes_nothing(seed: int, width: int, penalty: float, max_tokens: int) -> None:
    rules = BeamRules(width, penalty, max_tokens, 0, frozenset({END}))
    hasty, patient = run(seed, rules, None, 9), run(seed, rules, Patient(rules), 9)
    assert [beam.token_ids for beam in hasty] == [beam.token_ids for beam in patient]


def test_one_beam_without_ends_is_greedy() -> None:
    (beam,) = run(7, BeamRules(1, 1.0, 6, num_logprobs=2))
    for at, entry in enumerate(beam.entries):
        known = thought(7, tuple(beam.token_ids[:at]))
        assert (entry.token_id, entry.rank) == (known.top_ids[0], 1)
        assert entry.top_ids == known.top_ids[:2]
    assert beam.finish_reason is FinishReason.LENGTH


def test_impossible_tokens_are_never_taken() -> None:
    search = BeamSearch(BeamRules(2, 1.0, 1))
    search.advance([TokenLogprobs(5, 0.0, 1, [5, 6, 7, 8], [0.0, *[-math.inf] * 3])])
    assert [beam.token_ids for beam in search.best] == [[5]]


BODY = {"prompt": "Hello", "max_tokens": 4, "n": 3, "use_beam_search": True, "temperature": 0}


def test_choices_come_best_first_and_streams_say_the_same(tiny) -> None:
    """The engine's made-up log-probabilities prefer id 0, then 2, 3, ...: the beams follow."""
    body = {**BODY, "logprobs": 2, "return_token_ids": True}
    whole = httpx.post(f"{tiny.url}/v1/completions", json=body).json()
    choices = whole["choices"]
    assert [c["index"] for c in choices] == [0, 1, 2]
    assert [sorted(c["token_ids"]) for c in choices] == [[0, 0, 0, 0], [0, 0, 0, 2], [0, 0, 0, 2]]
    totals = [sum(c["logprobs"]["token_logprobs"]) for c in choices]
    assert totals == [-4.0, -6.0, -6.0]
    assert all(c["finish_reason"] == "length" for c in choices)
    assert whole["usage"] == {"prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17}
    streamed = httpx.post(f"{tiny.url}/v1/completions", json={**BODY, "stream": True}).text
    assert streamed.count('"finish_reason":"length"') == 3 and streamed.endswith("data: [DONE]\n\n")
    assert all(f'"text":"{c["text"]}"'.replace('"text":""', '"text":"') in streamed for c in choices)


def test_each_prompt_has_its_search_and_chat_has_them_too(tiny) -> None:
    answer = httpx.post(f"{tiny.url}/v1/completions", json={**BODY, "prompt": ["a", "b"]}).json()
    assert [c["index"] for c in answer["choices"]] == list(range(6)) and answer["usage"]["prompt_tokens"] == 2
    chat = {key: value for key, value in BODY.items() if key != "prompt"}
    answer = httpx.post(
        f"{tiny.url}/v1/chat/completions", json={**chat, "messages": [{"role": "user", "content": "Hello"}]}
    ).json()
    assert answer["choices"][0]["message"]["content"] == "!!!!"


def test_an_end_token_ends_a_beam(tiny) -> None:
    """Id 0 as a stop token: every best beam ends at once; a minimum length keeps it from being taken before."""
    body = {**BODY, "n": 1, "stop_token_ids": [0], "return_token_ids": True}
    (choice,) = httpx.post(f"{tiny.url}/v1/completions", json=body).json()["choices"]
    assert (choice["token_ids"], choice["text"]) == ([0], "")
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", 0)
    (choice,) = httpx.post(f"{tiny.url}/v1/completions", json={**body, "min_tokens": 2}).json()["choices"]
    assert choice["token_ids"] == [2, 2, 0]
    kept = httpx.post(f"{tiny.url}/v1/completions", json={**body, "include_stop_str_in_output": True}).json()
    assert kept["choices"][0]["text"] == "!"


def test_a_step_that_fails_fails_the_call(serve) -> None:
    with serve({"fault": "request", "fault_step": 2}) as running:
        response = httpx.post(f"{running.url}/v1/completions", json=BODY)
        assert response.status_code == 500 and "out of memory" in response.text
        assert httpx.post(f"{running.url}/v1/completions", json=BODY).status_code == 200
