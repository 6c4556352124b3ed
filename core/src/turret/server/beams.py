"""Beam search over one prompt: which sequences live on, which are complete, when nothing better can come.

Owns: that bookkeeping. Knows nothing of engines, text or HTTP: it is told what the model thinks of each live sequence.

A sequence of n tokens (the end token counts) with cumulative log-probability c scores c / n ** length_penalty. Each
step looks at the 2 * width best continuations of every live sequence: those that end go to the finished ones, the best
`width` of the others live on. Log-probabilities are never positive, so once no live sequence can overtake the worst of
`width` finished ones the search is over; its result is that of going on to the last token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from turret.messages import FinishReason, TokenLogprobs

__all__ = ["Beam", "BeamRules", "BeamSearch"]


@dataclass(frozen=True, slots=True)
class BeamRules:
    """What a search is to find. Tokens in `ends` finish a sequence of more than `min_tokens` tokens, and are not taken
    before. `num_logprobs` is how many alternatives are kept at each position."""

    width: int
    length_penalty: float
    max_tokens: int
    min_tokens: int = 0
    ends: frozenset[int] = frozenset()
    num_logprobs: int = 0

    @property
    def num_candidates(self) -> int:
        """Continuations that must be known of each live sequence: ends that may not be taken yet do not count."""
        return 2 * self.width + (len(self.ends) if self.min_tokens else 0)


@dataclass(frozen=True, slots=True)
class Beam:
    """A sequence: its last token, what came before, and the sum of its log-probabilities."""

    parent: Beam | None = None
    entry: TokenLogprobs | None = None
    length: int = 0
    total: float = 0.0
    finish_reason: FinishReason | None = None

    @property
    def entries(self) -> list[TokenLogprobs]:
        """What is known of each token, in order."""
        found: list[TokenLogprobs] = []
        beam: Beam | None = self
        while beam is not None and beam.entry is not None:
            found.append(beam.entry)
            beam = beam.parent
        return found[::-1]

    @property
    def token_ids(self) -> list[int]:
        """The tokens, in order."""
        return [entry.token_id for entry in self.entries]

    def score(self, penalty: float) -> float:
        """Its rank among sequences of other lengths."""
        return self.total / math.pow(self.length, penalty) if self.length else self.total


class BeamSearch:
    """One search. While `live` is not empty, say in `advance` what the model thinks of each of its sequences."""

    def __init__(self, rules: BeamRules) -> None:
        self.live: list[Beam] = [Beam()]
        self._rules = rules
        self._finished: list[Beam] = []

    def advance(self, thoughts: Sequence[TokenLogprobs]) -> None:
        """One step: `thoughts` holds at least `num_candidates` alternatives (or the whole vocabulary) for each of
        `live`, best first."""
        going: list[Beam] = []
        for beam, thought in zip(self.live, thoughts, strict=True):
            for child in self._children(beam, thought):
                (going if child.finish_reason is None else self._finished).append(child)
        going.sort(key=lambda beam: -beam.total)
        self.live = going[: self._rules.width]
        self._finished = self._ranked(self._finished)
        if self.live and self.live[0].length >= self._rules.max_tokens:
            self.end(FinishReason.LENGTH)
        elif len(self._finished) == self._rules.width and self._best_to_come() <= self._score(self._finished[-1]):
            self.live = []

    def end(self, reason: FinishReason) -> None:
        """Finish what lives, for `reason`."""
        ended = [
            Beam(beam.parent, beam.entry, beam.length, beam.total, reason) for beam in self.live if beam.length
        ]  # fmt: skip
        self._finished = self._ranked([*self._finished, *ended])
        self.live = []

    @property
    def best(self) -> list[Beam]:
        """The finished sequences, best first: `width` of them, or fewer where the vocabulary allows no more."""
        return self._finished

    def _children(self, beam: Beam, thought: TokenLogprobs) -> list[Beam]:
        rules, children = self._rules, list[Beam]()
        alternatives = list(zip(thought.top_ids, thought.top_logprobs, strict=True))
        kept = alternatives[: rules.num_logprobs]
        for rank, (token, logprob) in enumerate(alternatives, 1):
            ends = token in rules.ends
            if len(children) == 2 * rules.width:
                break
            if logprob == -math.inf or (ends and beam.length < rules.min_tokens):
                continue
            entry = TokenLogprobs(token, logprob, rank, [i for i, _ in kept], [p for _, p in kept])
            reason = FinishReason.STOP if ends else None
            children.append(Beam(beam, entry, beam.length + 1, beam.total + logprob, reason))
        return children

    def _ranked(self, beams: list[Beam]) -> list[Beam]:
        return sorted(beams, key=lambda beam: -self._score(beam))[: self._rules.width]

    def _score(self, beam: Beam) -> float:
        return beam.score(self._rules.length_penalty)

    def _best_to_come(self) -> float:
        """No continuation of what lives can score higher: its sum can only fall, whatever its length."""
        if not self.live:
            return -math.inf
        penalty = self._rules.length_penalty
        length = self._rules.max_tokens if penalty > 0 else self.live[0].length + 1
        return self.live[0].total / math.pow(length, penalty)
