"""Cases of structured backends: masks, stops, taking tokens back, and refusing what cannot be kept to.

Owns these checks and a vocabulary to make them with. Knows no backend. What a backend makes of each JSON schema is for
its authors' own tests; `Walker` generates answers for them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from turret.contracts import GrammarCompiler, GrammarMatcher, GrammarSpec, Vocabulary
from turret.errors import RequestError
from turret.testing.cases import Case, NotApplicable, Subject

__all__ = ["Walker", "allowed", "build", "small_vocabulary"]

STOP = 0
_CLOSING = frozenset({b'"', b"}", b"]", b'"}', b'":', b":", b",", b"},", b'",'})
SPECS: dict[str, tuple[GrammarSpec, str]] = {
    "json": (
        GrammarSpec(kind="json", text=json.dumps({
            "type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yz"]}},
            "required": ["a", "b"], "additionalProperties": False})),
        r'\s*\{\s*"a"\s*:\s*-?\d+\s*,\s*"b"\s*:\s*"(x|yz)"\s*\}\s*'),
    "json_object": (GrammarSpec(kind="json_object"), r"\s*\{[\s\S]*\}\s*"),
    "regex": (GrammarSpec(kind="regex", text="[a-c]{2,4}-[0-9]+"), r"[a-c]{2,4}-[0-9]+"),
    "choice": (GrammarSpec(kind="choice", text='["yes","no","é\\"\\\\"]'), r'yes|no|é"\\'),
    "grammar": (GrammarSpec(kind="grammar", text='root ::= "<" word ">"\nword ::= [a-z]+ | "(" word ")"\n'),
                r"<\(*[a-z]+\)*>"),
}  # fmt: skip
"""Of each kind a spec, and a regular expression that everything it allows matches."""
WRONG = (
    GrammarSpec(kind="regex", text="(a"),
    GrammarSpec(kind="grammar", text="root ::= missing"),
    GrammarSpec(kind="json", text='{"type":"nonsense"}'),
    GrammarSpec(kind="json", text='{"$ref":"#"}'),
    GrammarSpec(kind="json", text='{"type":"string","turret-unknown-keyword":1}'),
)


def build(subject: Subject) -> Iterator[Case]:
    for kind in SPECS:
        yield subject.case("semantic", f"answers_{kind}", _answers, subject, kind)
    yield subject.case("semantic", "restores", _restores, subject)
    yield subject.case("semantic", "takes_back", _takes_back, subject)
    yield subject.case("semantic", "rejects_tokens", _rejects, subject)
    for number in range(len(WRONG)):
        yield subject.case("honesty", f"refuses_{number}", _refuses, subject, WRONG[number])


def small_vocabulary() -> Vocabulary:
    """All bytes, some longer tokens that cross the boundaries of JSON, and two that are no text; 0 ends an answer."""
    longer = [b'{"', b'":', b'", "', b'"}', b"yes", b"ab", b"12", b"  ", b"\n", "é".encode(), b"true", b"null", b"},"]
    return Vocabulary([b"", b"", *(bytes([byte]) for byte in range(256)), *longer], (STOP,))


def allowed(mask: NDArray[np.int32]) -> NDArray[np.int64]:
    """The tokens of a mask, ascending."""
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))


class Walker:
    """Random answers over one vocabulary, by masks alone: what may end ends soon, and after `most` tokens as soon as it
    may."""

    def __init__(self, vocabulary: Vocabulary, most: int = 60) -> None:
        self._vocabulary = vocabulary
        self._most = most
        tokens = vocabulary.tokens
        self._closing = np.array([token.strip() in _CLOSING for token in tokens])
        self._stops = np.isin(np.arange(len(tokens)), vocabulary.stop_ids)
        self._text = np.array([bool(token.strip()) for token in tokens])

    def walk(self, matcher: GrammarMatcher, seed: int) -> bytes | None:
        """One answer; None if it does not end. Raises AssertionError where masks and matcher disagree."""
        chance = random.Random(seed)
        stop = self._vocabulary.stop_ids[0]
        mask = np.zeros(self._vocabulary.words, dtype=np.int32)
        made = b""
        for step in range(6 * self._most):
            matcher.fill(mask)
            tokens = allowed(mask)
            assert tokens.size, f"nothing may follow {made!r}"
            may_end = bool(mask[stop >> 5] >> (stop & 31) & 1)
            assert may_end == matcher.is_finished(), "stop ids are for what is complete"
            if may_end and (step > self._most or self._stops[tokens].all() or chance.random() < 0.2):
                assert matcher.accept(stop) and matcher.is_terminated()
                return made
            token = self._pick(tokens[~self._stops[tokens]], chance, step > self._most)
            text = self._vocabulary.tokens[token]
            assert matcher.accept(token), f"the mask allows {text!r} after {made!r}, accept does not"
            made += text
        return None

    def _pick(self, tokens: NDArray[np.int64], chance: random.Random, closing: bool) -> int:
        """Mostly something that gets on: structure rather than one more letter or space."""
        ends = tokens[self._closing[tokens]]
        if ends.size and (closing or chance.random() < 0.3):
            return int(ends[chance.randrange(ends.size)])
        text = tokens[self._text[tokens]]
        tokens = text if text.size else tokens
        return int(tokens[chance.randrange(tokens.size)])


def _compiler(subject: Subject) -> tuple[GrammarCompiler, Vocabulary]:
    vocabulary = small_vocabulary()
    compiler: GrammarCompiler = subject.load().open(vocabulary)
    return compiler, vocabulary


def _compiled(subject: Subject, kind: str) -> tuple[GrammarCompiler, Vocabulary, bytes]:
    spec, _ = SPECS[kind]
    verdict = subject.load().supports(spec)
    if not verdict.ok:
        raise NotApplicable(f"it does not do {kind}: {'; '.join(verdict.reasons)}")
    compiler, vocabulary = _compiler(subject)
    return compiler, vocabulary, compiler.compile(spec)


def _answers(subject: Subject, kind: str) -> None:
    """What the masks allow is what the spec says, and the end is allowed exactly there."""
    compiler, vocabulary, compiled = _compiled(subject, kind)
    grammar = compiler.restore(compiled)
    walker = Walker(vocabulary)
    ended = 0
    for seed in range(20):
        made = walker.walk(grammar.matcher(vocabulary.stop_ids), seed)
        if made is not None:
            ended += 1
            text = made.decode(errors="replace")  # as detokenizers do
            assert re.fullmatch(SPECS[kind][1], text), f"{text!r} is none of what was asked for"
            if kind.startswith("json"):
                json.loads(text)
    assert ended, "no answer ends"


def _restores(subject: Subject) -> None:
    """The bytes mean the same to a compiler that did not make them."""
    _, vocabulary, compiled = _compiled(subject, "json")
    other, _ = _compiler(subject)
    first, second = (_compiler(subject)[0].restore(compiled), other.restore(compiled))
    masks = [np.zeros(vocabulary.words, dtype=np.int32) for _ in range(2)]
    matchers = [grammar.matcher(vocabulary.stop_ids) for grammar in (first, second)]
    for byte in b'{"a":1,':
        for matcher, mask in zip(matchers, masks, strict=True):
            matcher.fill(mask)
            assert matcher.accept(2 + byte)
        assert np.array_equal(masks[0], masks[1])


def _takes_back(subject: Subject) -> None:
    """After a rollback everything is as it was."""
    compiler, vocabulary, compiled = _compiled(subject, "json")
    matcher = compiler.restore(compiled).matcher(vocabulary.stop_ids)
    seen = []
    tokens = [2 + byte for byte in b'{"a":12,"b":"x"}']
    for token in tokens:
        mask = np.zeros(vocabulary.words, dtype=np.int32)
        matcher.fill(mask)
        seen.append(mask)
        assert matcher.accept(token)
    assert matcher.is_finished() and not matcher.is_terminated()
    matcher.rollback(5)
    mask = np.zeros(vocabulary.words, dtype=np.int32)
    matcher.fill(mask)
    assert np.array_equal(mask, seen[-5]) and not matcher.is_finished()
    assert all(matcher.accept(token) for token in tokens[-5:])


def _rejects(subject: Subject) -> None:
    """A token that does not fit is not taken, and changes nothing; nor is an end before the end."""
    compiler, vocabulary, compiled = _compiled(subject, "regex")
    matcher = compiler.restore(compiled).matcher(vocabulary.stop_ids)
    assert matcher.accept(2 + ord("a"))
    assert not matcher.accept(2 + ord("z")) and not matcher.accept(STOP)
    assert matcher.accept(2 + ord("b")) and matcher.accept(2 + ord("-")) and matcher.accept(2 + ord("7"))
    assert matcher.is_finished() and matcher.accept(STOP) and matcher.is_terminated()


def _refuses(subject: Subject, spec: GrammarSpec) -> None:
    """What is wrong, or would be ignored, is refused with a sentence."""
    if not subject.load().supports(spec).ok:
        return
    compiler, _ = _compiler(subject)
    try:
        compiler.compile(spec)
    except RequestError as error:
        assert str(error) and "\n" not in str(error)
        return
    raise AssertionError(f"{spec.kind} {spec.text!r} is accepted")
