"""Sampling parameters: every range and its message, and the spellings that mean the same."""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec
import pytest

from turret.errors import RequestError
from turret.sampling import SamplingParams

NUMBERS = ("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "min_p")


@pytest.mark.parametrize(
    ("field", "inside", "outside", "words"),
    [
        ("n", [1, 16384], [0, -1, 16385], "between 1 and 16384"),
        ("presence_penalty", [-2, 0, 2], [-2.01, 2.01], "[-2, 2]"),
        ("frequency_penalty", [-2, 0, 2], [-2.01, 2.01], "[-2, 2]"),
        ("repetition_penalty", [0.01, 1, 50], [0, -1], "greater than zero"),
        ("temperature", [0, 1, 100], [-0.01], "non-negative"),
        ("top_p", [0.001, 1], [0, -0.1, 1.01], "(0, 1]"),
        ("top_k", [-1, 0, 1, 10**6], [-2], "0 (disable), -1 (disable) or at least 1"),
        ("min_p", [0, 1], [-0.01, 1.01], "[0, 1]"),
        ("seed", [-1, 0, 2**63 - 1, -(2**63), None], [2**63], "64 signed bits"),
        ("max_tokens", [1, 10**6, None], [0, -1], "at least 1"),
        ("min_tokens", [0, 16], [-1], "at least 0"),
        ("min_tokens", [16], [17], "at most max_tokens (16)"),
        ("logprobs", [-1, 0, 20, None, True, False], [-2], "-1 (all) or at least 0"),
        ("prompt_logprobs", [-1, 0, 20, None, True, False], [-2], "-1 (all) or at least 0"),
        ("stop", ["a", ["a", "b"], [], None], ["", ["a", ""]], "empty string"),
        ("bad_words", [["a"], [], None], [[""]], "empty string"),
        ("stop_token_ids", [[1, 2], [], None], [["a"], [True], [1.0]], "only integers"),
        ("stop", [["a"] * 1024], [["a"] * 1025, ["a" * 16385]], "1024 strings of 16384 characters"),
        ("bad_words", [["a"] * 1024], [["a"] * 1025, ["a" * 16385]], "1024 strings of 16384 characters"),
        ("allowed_token_ids", [[1], None], [["a"]], "only integers"),
        ("allowed_token_ids", [[1], None], [[]], "must not be empty"),
        ("logit_bias", [{1: 3.0}, {}, None], [{1: math.inf}, {1: math.nan}, {"1": 1.0}, {1: "x"}], "finite numbers"),
    ],
)  # fmt: skip
def test_ranges(field: str, inside: list[Any], outside: list[Any], words: str) -> None:
    for value in inside:
        SamplingParams(**{field: value})
    for value in outside:
        with pytest.raises(RequestError) as told:
            SamplingParams(**{field: value})
        assert told.value.param == field and words in str(told.value), value
        assert isinstance(told.value, ValueError), "callers catch what they know"


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", None, True])
def test_numbers_are_finite_numbers(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"{field} must be a finite number"):
        SamplingParams(**{field: value})


@pytest.mark.parametrize("field", ["n", "top_k", "min_tokens", "seed", "max_tokens", "logprobs", "prompt_logprobs"])
@pytest.mark.parametrize("value", [1.5, "1"])
def test_counts_are_integers(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"{field} must be an integer"):
        SamplingParams(**{field: value})


def test_spellings_that_mean_the_same() -> None:
    assert SamplingParams(seed=-1) == SamplingParams()
    assert SamplingParams(top_k=-1) == SamplingParams(top_k=0)
    assert SamplingParams(stop="x").stop_strings == SamplingParams(stop=["x"]).stop_strings == ["x"]
    assert SamplingParams(logprobs=True) == SamplingParams(logprobs=1)
    assert SamplingParams(logprobs=False) == SamplingParams()
    assert SamplingParams(stop_token_ids=[3, 1, 3]).stop_token_ids == [3, 1]
    assert SamplingParams(logit_bias={1: 1e6, 2: -1e6}).logit_bias == {1: 100.0, 2: -100.0}
    assert SamplingParams(prompt_logprobs=0).skip_reading_prefix_cache is True
    assert SamplingParams(prompt_logprobs=0, skip_reading_prefix_cache=False).skip_reading_prefix_cache is False


@pytest.mark.parametrize(("asked", "used", "warns"), [(0.009, 0.01, True), (1e-5, 0.01, True), (0.01, 0.01, False)])
def test_a_tiny_temperature_is_raised_with_a_warning(
    asked: float, used: float, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        params = SamplingParams(temperature=asked)
    assert params.temperature == used and not params.greedy
    assert ("raised to 0.01" in caplog.text) == warns


def test_greedy_resets_the_filters_and_refuses_choices() -> None:
    params = SamplingParams(temperature=9e-6, top_p=0.5, top_k=3, min_p=0.1)
    assert params.greedy and (params.top_p, params.top_k, params.min_p) == (1.0, 0, 0.0)
    with pytest.raises(RequestError, match="n must be 1 when using greedy"):
        SamplingParams(temperature=0, n=2)
    with pytest.raises(RequestError, match=r"top_p must be in \(0, 1\]"):
        SamplingParams(temperature=0, top_p=2)


def test_stop_strings_need_text() -> None:
    with pytest.raises(RequestError, match="detokenize=True"):
        SamplingParams(stop="x", detokenize=False)


@pytest.mark.parametrize("field", ["logit_bias", "allowed_token_ids", "stop_token_ids"])
@pytest.mark.parametrize("token", [-1, 10])
def test_token_ids_are_of_the_vocabulary(field: str, token: int) -> None:
    ids: Any = {token: 1.0} if field == "logit_bias" else [token]
    with pytest.raises(RequestError, match=rf"{field} .*vocabulary of 10 tokens: \[{token}\]"):
        SamplingParams(**{field: ids}).check_against_model(10, 20)


@pytest.mark.parametrize("field", ["logprobs", "prompt_logprobs"])
def test_the_ceiling_of_logprobs(field: str) -> None:
    for count, ceiling in ((20, 20), (50, -1), (-1, 100), (-1, -1)):
        SamplingParams(**{field: count}).check_against_model(100, ceiling)
    for count in (21, -1):
        with pytest.raises(RequestError, match=rf"{field}={count} .*\(20\).*--max-logprobs"):
            SamplingParams(**{field: count}).check_against_model(100, 20)


def test_a_copy_is_checked_and_survives_the_wire() -> None:
    params = SamplingParams(temperature=0.7, stop=["x"], logit_bias={5: 1.0}, seed=3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params
    assert params.replace(top_k=4).top_k == 4
    with pytest.raises(RequestError, match="top_k"):
        params.replace(top_k=-5)


def test_arguments_that_nobody_reads_are_refused() -> None:
    with pytest.raises(RequestError, match="extra_args is read by logits-processor plugins"):
        SamplingParams(extra_args={"anything": 1})
