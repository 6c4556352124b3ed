"""Streaming equals decoding: for any ids and any cut, the increments concatenate to the text of all ids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turret.text import Tokenizer
from turret.text.detokenizer import WindowDetokenizer
from turret.text.directory_tokenizer import tokenizer_from_directory


@pytest.fixture(scope="session")
def tokenizer(any_dir: Path) -> Tokenizer:
    return tokenizer_from_directory(any_dir)


def cut(ids: Sequence[int], points: Sequence[int]) -> list[Sequence[int]]:
    edges = [0, *sorted(min(p, len(ids)) for p in points), len(ids)]
    return [ids[a:b] for a, b in itertools.pairwise(edges)]


def stream(tokenizer: Tokenizer, pieces: Sequence[Sequence[int]], skip: bool = True) -> list[str]:
    detokenizer = tokenizer.detokenizer(skip_special_tokens=skip)
    return [*(detokenizer.push(piece) for piece in pieces), detokenizer.finish()]


@settings(max_examples=150, deadline=None)
@given(text=st.text(), points=st.lists(st.integers(0, 60), max_size=6), skip=st.booleans())
def test_any_text_in_any_cut(tokenizer: Tokenizer, text: str, points: list[int], skip: bool) -> None:
    ids = tokenizer.encode(text)
    whole = tokenizer.decode(ids, skip_special_tokens=skip)
    pieces = stream(tokenizer, cut(ids, points), skip)
    assert "".join(pieces) == whole
    assert sum(p.count("\ufffd") for p in pieces) == whole.count("\ufffd")
    assert "".join(stream(tokenizer, [[i] for i in ids], skip)) == whole


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_ids_in_any_cut(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """Ids that no text encodes to: broken characters, unknown ids, special tokens anywhere."""
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 2), max_size=30))
    points = data.draw(st.lists(st.integers(0, 30), max_size=6))
    assert "".join(stream(tokenizer, cut(ids, points))) == tokenizer.decode(ids)


def test_every_script_token_by_token(tokenizer: Tokenizer, corpus: list[str]) -> None:
    for text in corpus:
        ids = tokenizer.encode(text)
        assert "".join(stream(tokenizer, [[i] for i in ids])) == tokenizer.decode(ids)


def test_a_character_comes_out_whole(byte_level_dir: Path) -> None:
    tokenizer = tokenizer_from_directory(byte_level_dir)
    alphabet = [tokenizer.token_id(c) for c in "ðŁİĪ"]  # the four bytes of a balloon
    assert stream(tokenizer, [[i] for i in alphabet]) == ["", "", "", "🎈", ""]
    assert stream(tokenizer, [[i] for i in alphabet[:2]]) == ["", "", "\ufffd"]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_text_after_a_prompt_continues_it(data: st.DataObject, tokenizer_pair: tuple[Tokenizer, Tokenizer]) -> None:
    """What follows the prompt is what the whole text has beyond the prompt's, whole characters only."""
    tokenizer = data.draw(st.sampled_from(tokenizer_pair))
    text = data.draw(st.text(min_size=1))
    ids = tokenizer.encode("Once upon a time " + text)
    at = data.draw(st.integers(1, len(ids)))
    detokenizer = tokenizer.detokenizer(prompt_token_ids=ids[:at])
    continued = detokenizer.push(ids[at:]) + detokenizer.finish()
    before = b"".join(tokenizer.token_bytes(i) for i in ids[:at] if i not in tokenizer.special_ids)
    whole = b"".join(tokenizer.token_bytes(i) for i in ids if i not in tokenizer.special_ids)
    certain = before.decode("utf-8", "ignore")
    assert continued == whole.decode("utf-8", "replace")[len(certain) :]


@pytest.fixture(scope="session")
def tokenizer_pair(byte_level_dir: Path, sentencepiece_dir: Path) -> tuple[Tokenizer, Tokenizer]:
    return tokenizer_from_directory(byte_level_dir), tokenizer_from_directory(sentencepiece_dir)


def test_leading_space_belongs_to_a_continuation(sentencepiece_dir: Path) -> None:
    tokenizer = tokenizer_from_directory(sentencepiece_dir)
    ids = tokenizer.encode("the fox", add_special_tokens=False)
    alone, after = tokenizer.detokenizer(), tokenizer.detokenizer(prompt_token_ids=tokenizer.encode("quick"))
    assert alone.push(ids) + alone.finish() == "the fox"
    assert after.push(ids) + after.finish() == " the fox"


def test_wordpiece_words_keep_their_spaces(wordpiece_dir: Path) -> None:
    tokenizer = tokenizer_from_directory(wordpiece_dir)
    ids = tokenizer.encode("the quick brown fox", add_special_tokens=False)
    half = len(ids) // 2
    detokenizer = tokenizer.detokenizer(prompt_token_ids=ids[:half])
    assert tokenizer.decode(ids[:half]) + detokenizer.push(ids[half:]) + detokenizer.finish() == tokenizer.decode(ids)


def test_broken_bytes_do_not_pile_up(byte_level_dir: Path, sentencepiece_dir: Path) -> None:
    """A model that babbles continuation bytes must not make each token dearer than the last."""
    for path in (byte_level_dir, sentencepiece_dir):
        tokenizer = tokenizer_from_directory(path)
        bad = next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == b"\x80")
        detokenizer = tokenizer.detokenizer()
        emitted = sum(len(detokenizer.push([bad])) for _ in range(1000))
        assert emitted == 1000


def test_special_tokens_are_silent_only_when_asked(byte_level_dir: Path) -> None:
    tokenizer = tokenizer_from_directory(byte_level_dir)
    ids = tokenizer.encode("<|im_start|>hi<think>x<|im_end|>")
    assert "".join(stream(tokenizer, [ids])) == "hi<think>x"
    assert "".join(stream(tokenizer, [ids], skip=False)) == "<|begin|><|im_start|>hi<think>x<|im_end|>"


def test_tokens_without_text_do_not_pile_up(wordpiece_dir: Path) -> None:
    """Ids outside the vocabulary show nothing; ten thousand of them must not each be decoded again with the last."""
    tokenizer = tokenizer_from_directory(wordpiece_dir)
    silent, ids = tokenizer.vocab_size + 5, tokenizer.encode("quick fox", add_special_tokens=False)
    detokenizer = tokenizer.detokenizer()
    pieces = [detokenizer.push([i]) for i in [*ids[:-1], *[silent] * 10_000, ids[-1]]] + [detokenizer.finish()]
    assert "".join(pieces).replace(" ", "") == tokenizer.decode(ids).replace(" ", "")


@pytest.mark.parametrize("kind", ["byte_level_dir", "sentencepiece_dir"])
def test_a_character_that_broke_in_the_prompt_is_not_in_the_text(kind: str, request: pytest.FixtureRequest) -> None:
    tokenizer = tokenizer_from_directory(request.getfixturevalue(kind))
    by_bytes = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
    first, second, letter = by_bytes[b"\xc3"], by_bytes[b"\xa9"], by_bytes[b"a"]
    endings = (
        ([], ""), ([letter], "a"), ([second], "\u00e9"), ([first], "\ufffd"), ([second, letter], "\u00e9a"),
    )  # fmt: skip
    for after, expected in endings:
        for pieces in ([after], [[i] for i in after]):
            detokenizer = tokenizer.detokenizer(prompt_token_ids=[letter, first])
            assert "".join(detokenizer.push(piece) for piece in pieces) + detokenizer.finish() == expected


def test_a_window_completes_what_the_prompt_began() -> None:
    """A decoder of its own kind, whose tokens are single bytes."""

    def decode(ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    for after, expected in (([], ""), ([0x61], "a"), ([0xA9], "\u00e9"), ([0xA9, 0x61], "\u00e9a")):
        detokenizer = WindowDetokenizer(decode, frozenset(), [0x61, 0xC3])
        assert "".join(detokenizer.push([i]) for i in after) + detokenizer.finish() == expected
