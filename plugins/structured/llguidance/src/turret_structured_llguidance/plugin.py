"""The backend as turret loads it.

Owns: from a spec to llguidance's grammars, and its matchers behind the contract. Knows no request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.contracts import GrammarSpec, Verdict, Vocabulary
from turret.errors import RequestError
from turret_structured_llguidance.schema import complaint

__all__ = ["Guidance", "GuidanceBackend", "GuidanceCompiler", "GuidanceMatcher"]

SPACE = r"[\x20\x0A\x0D\x09]{1,16}"
"""White space between tokens of JSON; without a bound a model may go on with spaces for ever."""


class GuidanceBackend:
    """Contract `structured`, 1.0."""

    api = "1.0"
    name = "llguidance"

    def supports(self, query: GrammarSpec) -> Verdict:
        """What a look at the spec tells; the library has the last word."""
        reason = complaint(query)
        return Verdict.yes("llguidance can be held to it") if reason is None else Verdict.no(reason)

    def open(self, vocabulary: Vocabulary) -> GuidanceCompiler:
        """Loads llguidance and builds its trie of the vocabulary."""
        return GuidanceCompiler(vocabulary)


class _Tokens:
    """A vocabulary as the library asks for it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.stop_ids[0]
        self.bos_token_id = None
        # A byte that no text holds marks what is no text.
        self.tokens = [token or b"\xff<|%d|>" % number for number, token in enumerate(vocabulary.tokens)]
        self.special_token_ids = [number for number, token in enumerate(vocabulary.tokens) if not token]
        self._bytes = {token[0]: number for number, token in enumerate(vocabulary.tokens) if len(token) == 1}

    def __call__(self, text: bytes | str) -> list[int]:
        """Any tokens that spell a text; the library asks while it is made, masks do not depend on it."""
        raw = text.encode() if isinstance(text, str) else text
        return [self._bytes[byte] for byte in raw if byte in self._bytes]


class GuidanceCompiler:
    """llguidance for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance
        from llguidance.gbnf_to_lark import any_to_lark

        if not vocabulary.stop_ids:
            raise RequestError("the model has no token that ends an answer")
        self._any_to_lark = any_to_lark
        self._make = llguidance.LLMatcher
        self._words = vocabulary.words
        self._tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Tokens(vocabulary)), n_vocab=len(vocabulary.tokens),
            eos_token=list(vocabulary.stop_ids))
        self._stop_ids = vocabulary.stop_ids

    def compile(self, spec: GrammarSpec) -> bytes:
        """See the contract."""
        try:
            text = self._grammar(spec)
        except Exception as error:  # the converter raises whatever it meets
            raise RequestError(_sentence(str(error))) from error
        self._made(text)
        return text.encode()

    def restore(self, compiled: bytes) -> Guidance:
        """See the contract."""
        return Guidance(self._made(compiled.decode()), self._stop_ids)

    def _made(self, text: str) -> Any:
        made = self._make(self._tokenizer, text, log_level=0)
        if made.is_error():
            raise RequestError(_sentence(made.get_error()))
        return made

    def _grammar(self, spec: GrammarSpec) -> str:
        made: str
        if spec.kind in ("json", "json_object"):
            options: Any = {"whitespace_flexible": spec.any_whitespace, "coerce_one_of": False, "lenient": False}
            if spec.any_whitespace:
                options["whitespace_pattern"] = spec.whitespace_pattern or SPACE
            made = self._make.grammar_from_json_schema(spec.text or '{"type":"object"}', overrides=options)
        elif spec.kind == "regex":
            made = self._make.grammar_from_regex(spec.text)
        elif spec.kind == "choice":
            choices = (json.dumps(text, ensure_ascii=False) for text in json.loads(spec.text))
            made = self._make.grammar_from_lark(f"start: {' | '.join(choices)}")
        else:
            lark = self._any_to_lark(spec.text) if "::=" in spec.text else spec.text
            made = self._make.grammar_from_lark(lark)
        return made


class Guidance:
    """One grammar: a matcher that is never moved, to copy."""

    def __init__(self, first: Any, eos: tuple[int, ...]) -> None:
        self._first = first
        self._eos = eos

    def matcher(self, stop_ids: Sequence[int]) -> GuidanceMatcher:
        """See the contract."""
        return GuidanceMatcher(self._first.deep_copy(), self._eos, tuple(stop_ids))


class GuidanceMatcher:
    """One answer. `eos` end it for the library, `stop_ids` for the request."""

    __slots__ = ("_ended", "_eos", "_matcher", "_stop_ids")

    def __init__(self, matcher: Any, eos: tuple[int, ...], stop_ids: tuple[int, ...]) -> None:
        self._matcher = matcher
        self._eos = eos
        self._stop_ids = stop_ids
        self._ended = False

    def fill(self, mask: NDArray[np.int32]) -> None:
        """See the contract."""
        bits = mask.view(np.uint32)
        if self._matcher.is_stopped():  # nothing may follow but the end
            bits.fill(0)
        else:
            self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._matcher.is_error():
            raise RuntimeError(_sentence(self._matcher.get_error()))
        for token in self._eos:
            bits[token >> 5] &= ~np.uint32(1 << (token & 31))
        if self._matcher.is_accepting():
            for token in self._stop_ids:
                bits[token >> 5] |= np.uint32(1 << (token & 31))

    def accept(self, token: int) -> bool:
        """See the contract. Of the end the library is not told: it takes none where nothing else may follow."""
        if token in self._stop_ids:
            if self._ended or not self._matcher.is_accepting():
                return False
            self._ended = True
            return True
        return bool(not self._ended and self._matcher.try_consume_tokens([token]) == 1)

    def rollback(self, count: int) -> None:
        """See the contract."""
        if self._ended and count:
            self._ended = False
            count -= 1
        self._matcher.rollback(count)

    def is_finished(self) -> bool:
        """See the contract."""
        return self._ended or bool(self._matcher.is_accepting())

    def is_terminated(self) -> bool:
        """See the contract."""
        return self._ended


def _sentence(text: str) -> str:
    """The first line of a complaint: what follows shows the grammar."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "it cannot be compiled"
