"""Text of a sequence: tokens and stop strings together, whatever the cut of the ids."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turret.sampling import SamplingParams
from turret.text import OutputText, Tokenizer
from turret.text.directory_tokenizer import tokenizer_from_directory


@pytest.fixture(scope="session")
def tokenizer(byte_level_dir: Path) -> Tokenizer:
    return tokenizer_from_directory(byte_level_dir)


def run(output: OutputText, pieces: list[list[int]]) -> tuple[str, str | None, int]:
    text, used, stop = "", 0, None
    for at, piece in enumerate(pieces):
        delta = output.push(piece, finished=at == len(pieces) - 1)
        text, used = text + delta.text, used + delta.num_tokens
        stop = delta.stop_reason
        if stop is not None:
            break
    return text, stop, used


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_cut_of_the_ids_gives_the_same(tokenizer: Tokenizer, data: st.DataObject) -> None:
    text = data.draw(st.text("ab 🎈é", max_size=30))
    stops = data.draw(st.lists(st.text("ab 🎈é", min_size=1, max_size=4), max_size=3))
    include = data.draw(st.booleans())
    ids = tokenizer.encode(text, add_special_tokens=False)
    minimum = data.draw(st.integers(0, len(ids)))
    params = SamplingParams(
        stop=stops, include_stop_str_in_output=include, min_tokens=minimum, max_tokens=None
    )  # fmt: skip
    points = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=5)))
    edges = [0, *points, len(ids)]
    pieces = [ids[a:b] for a, b in itertools.pairwise(edges)]
    one_by_one = [[i] for i in ids] or [[]]
    assert run(OutputText(tokenizer, params), pieces) == run(OutputText(tokenizer, params), one_by_one)
    if not stops:
        assert run(OutputText(tokenizer, params), pieces)[0] == text


def test_the_completing_token_counts_and_the_rest_does_not(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("one STOP two three", add_special_tokens=False)
    output = OutputText(tokenizer, SamplingParams(stop="STOP"))
    delta = output.push(ids, finished=True)
    assert (delta.text, delta.stop_reason) == ("one ", "STOP")
    assert tokenizer.decode(ids[: delta.num_tokens]).startswith("one STOP")
    assert "STOP" not in tokenizer.decode(ids[: delta.num_tokens - 1])
    assert output.push(ids) == ("", "STOP", 0)


def test_stop_string_in_the_output_when_asked(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("one STOP two", add_special_tokens=False)
    output = OutputText(tokenizer, SamplingParams(stop=["STOP"], include_stop_str_in_output=True))
    assert output.push(ids, finished=True).text == "one STOP"


def test_what_was_held_back_comes_at_the_end(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("one STO", add_special_tokens=False)
    output = OutputText(tokenizer, SamplingParams(stop="STOP"))
    assert output.push(ids).text == "one "
    assert output.push([], finished=True) == ("STO", None, 0)


def test_min_tokens_let_stop_strings_pass(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a.b.c.d.", add_special_tokens=False)
    assert len(ids) == 8
    params = SamplingParams(stop=".", min_tokens=4, max_tokens=20)
    assert run(OutputText(tokenizer, params), [ids]) == ("a.b", ".", 4)
    params = SamplingParams(stop=".", min_tokens=5, max_tokens=20)
    assert run(OutputText(tokenizer, params), [ids]) == ("a.b.c", ".", 6)


def test_the_stop_token_is_not_shown(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("hello<|im_end|>", add_special_tokens=False)
    show = SamplingParams(skip_special_tokens=False)
    assert OutputText(tokenizer, show).push(ids, finished=True, stopped_by_token=True) == ("hello", None, len(ids))
    assert OutputText(tokenizer, show).push(ids, finished=True).text == "hello<|im_end|>"
    both = SamplingParams(skip_special_tokens=False, include_stop_str_in_output=True)
    assert OutputText(tokenizer, both).push(ids, finished=True, stopped_by_token=True).text == "hello<|im_end|>"
    plain = SamplingParams()
    assert OutputText(tokenizer, plain).push(ids, finished=True, stopped_by_token=True).text == "hello"


def test_special_tokens_that_are_wanted_are_shown(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a<|im_start|>b<|im_end|>c", add_special_tokens=False)
    wanted = tokenizer.token_id("<|im_start|>")
    assert wanted is not None
    output = OutputText(tokenizer, SamplingParams(), shown=frozenset({wanted}))
    assert output.push(ids, finished=True).text == "a<|im_start|>bc"


def test_no_text_without_detokenizing(tokenizer: Tokenizer) -> None:
    for output in (OutputText(None, SamplingParams()), OutputText(tokenizer, SamplingParams(detokenize=False))):
        assert output.push([5, 6], finished=True) == ("", None, 2)
