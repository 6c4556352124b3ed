"""Contract `structured`: grammars that decide which tokens may come next.

Owns: the Protocols of a backend, its compiler, a grammar and a matcher. Knows no grammar. Version 1.0.

A spec is compiled in a process of its own, which is ended when it takes too much time or memory; what comes out is
bytes that the worker turns back into a grammar, quickly. So `compile` may be slow and `restore` may not. Importing a
backend's module loads nothing heavy: what it needs is loaded by `open`.

A mask has one bit for each token, lowest bit first: bit i of word w says whether token 32 * w + i may come next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from turret.contracts.verdict import Verdict
from turret.structured import GrammarSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Grammar", "GrammarCompiler", "GrammarMatcher", "GrammarSpec", "StructuredBackend", "Vocabulary"]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The bytes of each token by id, empty for tokens that are no text (special ones), and the ids that end an
    answer."""

    tokens: Sequence[bytes]
    stop_ids: tuple[int, ...]

    @property
    def words(self) -> int:
        """Words of a mask."""
        return (len(self.tokens) + 31) // 32


@runtime_checkable
class GrammarMatcher(Protocol):
    """Where one answer is in its grammar. One thread at a time."""

    def fill(self, mask: NDArray[np.int32]) -> None:
        """Set mask [words] to the tokens that may come next: stop ids exactly when the text so far is complete."""

    def accept(self, token: int) -> bool:
        """Go on with a token; False, with nothing changed, if the grammar does not allow it."""

    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens accepted."""

    def is_finished(self) -> bool:
        """Whether the text so far is complete; true too after a stop id."""

    def is_terminated(self) -> bool:
        """Whether a stop id was accepted; nothing can follow."""


@runtime_checkable
class Grammar(Protocol):
    """A compiled grammar; any number of matchers share it."""

    def matcher(self, stop_ids: Sequence[int]) -> GrammarMatcher:
        """A matcher at the start; `stop_ids` end the answer."""


@runtime_checkable
class GrammarCompiler(Protocol):
    """A backend for one vocabulary."""

    def compile(self, spec: GrammarSpec) -> bytes:
        """A grammar as bytes; raises `RequestError` with one sentence for a spec that is wrong or cannot be done."""

    def restore(self, compiled: bytes) -> Grammar:
        """The grammar again, in milliseconds, in any process with the same backend and vocabulary."""


@runtime_checkable
class StructuredBackend(Protocol):
    """Makes grammars of specs.

    Promise: every text that a matcher calls finished is what the spec describes. What a backend cannot hold to it
    refuses, in `supports` or in `compile`; nothing in a spec is accepted and ignored.
    """

    api: str
    name: str

    def supports(self, query: GrammarSpec) -> Verdict:
        """Whether such a spec can be done here, as far as a look at it tells."""

    def open(self, vocabulary: Vocabulary) -> GrammarCompiler:
        """The backend for a vocabulary."""
