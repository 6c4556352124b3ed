"""The backend as turret loads it.

Owns: from a spec to xgrammar's compiler, and its matchers behind the contract. Knows no request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.contracts import GrammarSpec, Verdict, Vocabulary
from turret.errors import RequestError
from turret_structured_xgrammar.schema import complaint, prepared

__all__ = ["XGrammar", "XGrammarBackend", "XGrammarCompiler", "XGrammarMatcher"]

_PLACE = re.compile(r"^(?:\[[\d:]+\] )?(?:/?[\w./-]+\.(?:cc|h|py):\d+: )?(?:Check failed: \(.*\) is (?:false|true): )?")
MOST_SPACE = 16
"""Characters of white space between tokens of JSON; without a bound a model may go on with spaces for ever."""


class XGrammarBackend:
    """Contract `structured`, 1.0."""

    api = "1.0"
    name = "xgrammar"

    def supports(self, query: GrammarSpec) -> Verdict:
        """What a look at the spec tells; the compiler has the last word."""
        reason = complaint(query)
        return Verdict.yes("xgrammar can be held to it") if reason is None else Verdict.no(reason)

    def open(self, vocabulary: Vocabulary) -> XGrammarCompiler:
        """Loads xgrammar, which takes a second or two."""
        return XGrammarCompiler(vocabulary)


class XGrammarCompiler:
    """xgrammar for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        import xgrammar  # imports torch and transformers

        self._xgrammar = xgrammar
        self._info = xgrammar.TokenizerInfo(
            list(vocabulary.tokens), xgrammar.VocabType.RAW, vocab_size=len(vocabulary.tokens),
            stop_token_ids=list(vocabulary.stop_ids))
        # Bits of the last word of a mask that are tokens: xgrammar leaves anything in the others.
        self._tail = np.uint32((1 << ((len(vocabulary.tokens) - 1) % 32 + 1)) - 1).view(np.int32)
        # One thread: the process that compiles forks, and the cache is turret's.
        self._compiler = xgrammar.GrammarCompiler(self._info, max_threads=1, cache_enabled=False)

    def compile(self, spec: GrammarSpec) -> bytes:
        """See the contract."""
        try:
            compiled = _COMPILE[spec.kind](self._compiler, spec)
        except (RuntimeError, ValueError, TypeError) as error:
            raise RequestError(_sentence(error)) from error
        text: str = compiled.serialize_json()
        return text.encode()

    def restore(self, compiled: bytes) -> XGrammar:
        """See the contract."""
        made = self._xgrammar.CompiledGrammar.deserialize_json(compiled.decode(), self._info)
        return XGrammar(self._xgrammar, made, self._tail)


class XGrammar:
    """One compiled grammar."""

    def __init__(self, xgrammar: Any, compiled: Any, tail: np.int32) -> None:
        self._xgrammar = xgrammar
        self._compiled = compiled
        self._tail = tail

    def matcher(self, stop_ids: Sequence[int]) -> XGrammarMatcher:
        """See the contract."""
        made = self._xgrammar.GrammarMatcher(self._compiled, override_stop_tokens=list(stop_ids))
        return XGrammarMatcher(made, self._tail)


class XGrammarMatcher:
    """One answer."""

    __slots__ = ("_matcher", "_tail")

    def __init__(self, matcher: Any, tail: np.int32) -> None:
        self._matcher = matcher
        self._tail = tail

    def fill(self, mask: NDArray[np.int32]) -> None:
        """See the contract."""
        if not self._matcher.fill_next_token_bitmask(mask.reshape(1, -1)):
            mask.fill(-1)
        mask[-1] &= self._tail

    def accept(self, token: int) -> bool:
        """See the contract."""
        return bool(self._matcher.accept_token(token))

    def rollback(self, count: int) -> None:
        """See the contract."""
        self._matcher.rollback(count)

    def is_finished(self) -> bool:
        """See the contract."""
        return bool(self._matcher.is_terminated() or self._matcher.is_completed())

    def is_terminated(self) -> bool:
        """See the contract."""
        return bool(self._matcher.is_terminated())


def _json(compiler: Any, spec: GrammarSpec) -> Any:
    schema = json.dumps(prepared(json.loads(spec.text)), ensure_ascii=False)
    return compiler.compile_json_schema(
        schema, any_whitespace=spec.any_whitespace, max_whitespace_cnt=MOST_SPACE if spec.any_whitespace else None)


def _json_object(compiler: Any, spec: GrammarSpec) -> Any:
    return _json(compiler, GrammarSpec(kind="json", text='{"type":"object","additionalProperties":true}',
                                       any_whitespace=spec.any_whitespace))


def _choice(compiler: Any, spec: GrammarSpec) -> Any:
    return compiler.compile_grammar("root ::= " + " | ".join(_literal(text) for text in json.loads(spec.text)))


def _grammar(compiler: Any, spec: GrammarSpec) -> Any:
    if "::=" in spec.text:
        return compiler.compile_grammar(spec.text)
    return compiler.compile_lark(spec.text)


def _literal(text: str) -> str:
    """A string of EBNF."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else _escape(c) for c in escaped) + '"'


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def _sentence(error: Exception) -> str:
    """An error of the library without the place in the library where it was raised, and without what it points at."""
    lines = [_PLACE.sub("", line.strip()) for line in str(error).splitlines()]
    told = [line for line in lines if line.strip("^~ ")]
    return told[0] if told else type(error).__name__


_COMPILE: dict[str, Callable[[Any, GrammarSpec], Any]] = {
    "json": _json,
    "json_object": _json_object,
    "choice": _choice,
    "grammar": _grammar,
    "regex": lambda compiler, spec: compiler.compile_regex(spec.text),
    "structural_tag": lambda compiler, spec: compiler.compile_structural_tag(
        json.dumps(prepared(json.loads(spec.text)), ensure_ascii=False)),
}
