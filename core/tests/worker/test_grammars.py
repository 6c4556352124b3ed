"""Rows that follow a grammar: masks ready when they are needed, in step with what was generated."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from turret.contracts import SampleRow, Vocabulary
from turret.messages import GrammarProgram, Request
from turret.nn.ops_sample import sample as reference
from turret.sampling import SamplingParams
from turret.worker.grammars import Grammars
from turret.worker.sampler import Sampler
from turret.worker.sampling_rows import SamplingRows

VOCABULARY = Vocabulary([b"", b"", *(bytes([97 + i]) for i in range(26)), b""], (0,))
"""0 and 1 are no text, 0 ends; 2 to 27 are letters; 28 is special too."""


class Word:
    """Matches one word, letter by letter."""

    def __init__(self, word: str, stops: tuple[int, ...]) -> None:
        self.tokens = [2 + ord(letter) - 97 for letter in word]
        self.stops, self.place = stops, 0

    def fill(self, mask: np.ndarray) -> None:
        mask.fill(0)
        for token in self.stops if self.is_finished() else [self.tokens[self.place]]:
            mask[token // 32] |= 1 << (token % 32)

    def accept(self, token: int) -> bool:
        wanted = self.stops if self.is_finished() else [self.tokens[self.place]]
        self.place += token in wanted
        return token in wanted

    def rollback(self, count: int) -> None:
        self.place -= count

    def is_finished(self) -> bool:
        return self.place >= len(self.tokens)

    def is_terminated(self) -> bool:
        return self.place > len(self.tokens)


class Compiled:
    def __init__(self, word: str) -> None:
        self.word = word

    def matcher(self, stop_ids):
        if self.word == "broken":
            raise RuntimeError("no such word")
        return Word(self.word, tuple(stop_ids))


class Source:
    """A backend called `words`; `gate` holds it up."""

    names = ("words",)

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.restored = 0

    def vocabulary(self) -> Vocabulary:
        self.gate.wait()
        return VOCABULARY

    def open(self, backend: str) -> Source:
        return self

    def restore(self, compiled: bytes) -> Compiled:
        self.restored += 1
        return Compiled(compiled.decode())


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def rows(source):
    grammars = Grammars(source)
    yield SamplingRows(8, len(VOCABULARY.tokens) + 40, grammars)
    grammars.close()


def request(word: str, after=(), starts=(), **sampling) -> Request:
    program = GrammarProgram(backend="words", key=word, compiled=word.encode(), after=[list(ids) for ids in after],
                             starts=[list(ids) for ids in starts])
    return Request(request_id=word, prompt_token_ids=[1], sampling=SamplingParams(max_tokens=99, **sampling),
                   max_tokens=99, seed=7, eos_token_ids=[0], stop_token_ids=sampling.get("stop_token_ids") or [],
                   grammar=program)


def op(out, logits, rows: list[SampleRow]) -> None:
    reference(out, logits, rows)


op.masks = True


def generate(rows: SamplingRows, sampler: Sampler, row: int, count: int) -> list[int]:
    """Tokens of one row; the logits like high ids."""
    found = []
    for step in range(count):
        logits = np.arange(sampler.vocab_size, dtype=np.float32)[None] / 9 + step % 2
        [sampled] = sampler.sample(logits, np.array([row]), rows)
        assert sampled.error is None, sampled.error
        found.append(sampled.token)
        rows.append([row], [sampled.token])
    return found


def spelled(tokens: list[int]) -> str:
    return "".join(VOCABULARY.tokens[token].decode() if VOCABULARY.tokens[token] else f"<{token}>" for token in tokens)


@pytest.mark.parametrize("provider", [None, op])
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0}, {"top_k": 3}, {"top_p": 0.4},
                                      {"presence_penalty": 1.0}, {"logprobs": 2}])
def test_tokens_follow_and_end(rows, provider, sampling):
    sampler = Sampler(len(VOCABULARY.tokens) + 40, op=provider)
    rows.set(3, request("word", **sampling))
    assert spelled(generate(rows, sampler, 3, 7)) == "word<0><0><0>", "after the end only the end may come"


def test_logits_may_be_fewer_than_the_vocabulary(source):
    grammars = Grammars(source)
    rows = SamplingRows(1, 26, grammars)
    rows.set(0, request("no"))
    assert spelled(generate(rows, Sampler(26), 0, 3)) == "no<0>"
    grammars.close()


def test_an_op_that_knows_no_masks_is_not_asked(rows):
    def blind(out, logits, asked) -> None:
        raise AssertionError("it would ignore the mask")

    rows.set(0, request("fine"))
    assert spelled(generate(rows, Sampler(69, op=blind), 0, 4)) == "fine"


def test_a_request_that_comes_back_goes_on(rows):
    sampler = Sampler(69)
    rows.set(0, request("preempted"))
    first = generate(rows, sampler, 0, 4)
    rows.clear(0)
    rows.set(5, request("preempted"), first)
    assert spelled(first + generate(rows, sampler, 5, 6)) == "preempted<0>"


def test_the_grammar_waits_for_the_end_of_reasoning(rows):
    sampler = Sampler(69)
    closing = [2, 3]  # "ab"
    rows.set(0, request("yes", after=[closing], temperature=0.0))
    assert generate(rows, sampler, 0, 2) == [68, 68], "anything goes"
    for token in closing:
        rows.append([0], [token])
    assert spelled(generate(rows, sampler, 0, 4)) == "yes<0>"
    rows.set(1, request("yes", after=[closing]), [68, *closing, 26])
    assert spelled(generate(rows, sampler, 1, 3)) == "es<0>", "a request that comes back knows where it was"


def test_least_tokens_give_way_to_a_grammar_that_has_ended(rows):
    rows.set(0, request("ok", min_tokens=20))
    assert spelled(generate(rows, Sampler(69), 0, 3)) == "ok<0>"


def test_stop_tokens_that_are_no_text_end_it(rows):
    rows.set(0, request("ok", stop_token_ids=[28]))
    assert spelled(generate(rows, Sampler(69), 0, 3)) == "ok<28>"


def test_a_grammar_that_fails_is_its_own_request_s_error(rows):
    sampler = Sampler(69)
    rows.set(0, request("broken"))
    rows.set(1, request("ok"))
    failed, fine = sampler.sample(np.zeros((2, 69), dtype=np.float32), np.array([0, 1]), rows)
    assert failed.token is None and "no such word" in failed.error
    assert fine.token == 2 + ord("o") - 97


def test_rules_that_leave_nothing_are_told(rows):
    rows.set(0, request("ok", allowed_token_ids=[5]))
    [sampled] = Sampler(69).sample(np.zeros((1, 69), dtype=np.float32), np.array([0]), rows)
    assert sampled.token is None and "no token" in sampled.error


def test_rows_share_a_grammar_and_nobody_waits_for_it(rows, source):
    source.gate.clear()
    for row in range(4):
        rows.set(row, request("same"))
    source.gate.set()
    for row in range(4):
        assert spelled(generate(rows, Sampler(69), row, 5)) == "same<0>"
    assert source.restored == 1


def test_reasoning_may_come_first_or_not(rows):
    """Where the model itself opens its reasoning: the first token decides."""
    sampler = Sampler(69)
    rows.set(0, request("yes", after=[[5]], starts=[[28, 3]], temperature=0.0))
    assert generate(rows, sampler, 0, 2) == [28, 3], "the likeliest of what may come, then the rest of it"
    assert generate(rows, sampler, 0, 2) == [68, 68], "anything goes"
    rows.append([0], [5])
    assert spelled(generate(rows, sampler, 0, 4)) == "yes<0>"
    rows.set(1, request("yes", after=[[5]], starts=[[1]], temperature=0.0))
    assert spelled(generate(rows, sampler, 1, 4)) == "yes<0>"
    rows.set(2, request("yes", after=[[5]], starts=[[28, 3]]), [28, 3, 9, 5, 26])
    assert spelled(generate(rows, sampler, 2, 3)) == "es<0>", "a request that comes back knows where it was"


def test_without_a_backend_in_the_worker_a_request_says_so():
    rows = SamplingRows(2, 69)
    rows.set(0, request("ok"))
    rows.append([0], [3])
    [failed] = Sampler(69).sample(np.zeros((1, 69), dtype=np.float32), np.array([0]), rows)
    assert failed.token is None and "no grammars" in failed.error
