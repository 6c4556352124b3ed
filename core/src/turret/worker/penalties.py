"""Rules that change single logits of one request before a token is chosen.

Owns: allowed ids, bad words, min_tokens, logit bias, and the repetition, presence and frequency penalties, with the
token counts they need. Knows nothing of other rows.

Order: allowed ids, bad words, minimum length, bias, then penalties (repetition, then presence and frequency). Only the
tokens concerned are touched. Bad words match what was generated, not the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from turret.contracts import SampleRow
from turret.messages import Request

__all__ = ["Penalties", "TokenRules"]

_NOTHING = np.float32(-np.inf)


class Penalties:
    """Seen tokens of one request, and what they cost.

    `_ids[:n]` are the distinct tokens seen; `_counts[:n]` how often each was generated (0: only in the prompt).
    """

    __slots__ = ("_counts", "_frequency", "_ids", "_place", "_presence", "_repetition")

    def __init__(self, request: Request) -> None:
        sampling = request.sampling
        self._repetition = sampling.repetition_penalty
        self._presence = sampling.presence_penalty
        self._frequency = sampling.frequency_penalty
        prompt = request.prompt_token_ids if self._repetition != 1.0 else []
        seen = np.unique(np.asarray(prompt, dtype=np.int64))
        self._place = {int(token): place for place, token in enumerate(seen)}
        self._ids = np.zeros(max(64, 2 * len(self._place)), dtype=np.int64)
        self._ids[: len(self._place)] = seen
        self._counts = np.zeros(self._ids.size, dtype=np.float64)

    def append(self, token: int) -> None:
        """Count a generated token."""
        place = self._place.setdefault(token, len(self._place))
        if place == self._ids.size:
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[place] = token
        self._counts[place] += 1.0

    @property
    def largest(self) -> int:
        """The largest id seen; -1 if none was."""
        return int(self._ids[: len(self._place)].max(initial=-1))

    def fill(self, row: SampleRow) -> None:
        """Put the penalties as they are now into a row of the op `sample`."""
        n = len(self._place)
        row.seen, row.counts = (self._ids[:n], self._counts[:n]) if n else (None, None)
        row.repetition, row.presence, row.frequency = self._repetition, self._presence, self._frequency

    def apply(self, logits: NDArray[np.float32]) -> None:
        """Change the logits of seen tokens in place."""
        n = len(self._place)
        ids, counts = self._ids[:n], self._counts[:n]
        values = logits[ids].astype(np.float64)
        if self._repetition != 1.0:
            values = np.where(values > 0, values / self._repetition, values * self._repetition)
        values -= self._presence * (counts > 0) + self._frequency * counts
        logits[ids] = values


class TokenRules:
    """All rules of one request; `append` every generated token, `apply` before each choice."""

    __slots__ = (
        "_allowed", "_bad_words", "_bias", "_bias_ids", "_min_tokens", "_outputs", "_penalties", "_suppressed",
        "largest",
    )  # fmt: skip

    def __init__(self, request: Request, outputs: Iterable[int] = ()) -> None:
        sampling = request.sampling
        self._allowed = _ids(sampling.allowed_token_ids or ())
        self._bad_words = [list(word) for word in request.bad_words_ids if word]
        bias = sampling.logit_bias or {}
        self._bias_ids = np.array(list(bias.keys()), dtype=np.int64)
        self._bias = np.array(list(bias.values()), dtype=np.float32)
        self._suppressed = _ids({*request.eos_token_ids, *request.stop_token_ids})
        self._min_tokens = sampling.min_tokens if self._suppressed.size else 0
        penalized = sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1.0
        self._penalties = Penalties(request) if penalized else None
        self._outputs: list[int] = []
        for token in outputs:
            self.append(token)
        seen = -1 if self._penalties is None else self._penalties.largest
        self.largest = max(int(self._allowed.max(initial=-1)), int(self._bias_ids.max(initial=-1)), seen)
        """The largest id whose logit a rule may read, as far as the request says; generated tokens are within reach."""

    @property
    def active(self) -> bool:
        """Whether `apply` can change anything now or later."""
        waiting = len(self._outputs) < self._min_tokens
        return bool(waiting or self._allowed.size or self._bias.size or self._bad_words or self._penalties)

    def append(self, token: int) -> None:
        """Take note of a generated token."""
        self._outputs.append(token)
        if self._penalties is not None:
            self._penalties.append(token)

    def fill(self, row: SampleRow, vocab_size: int, ends: bool = False) -> None:
        """Put the rules as they are now into a row of the op `sample`; `ends`: a grammar leaves nothing but the end."""
        row.allowed = self._allowed if self._allowed.size else None
        row.bias_ids, row.bias = (self._bias_ids, self._bias) if self._bias.size else (None, None)
        banned = self._banned(vocab_size, ends)
        row.banned = np.array(banned, dtype=np.int64) if banned else None
        if self._penalties is not None:
            self._penalties.fill(row)

    def _banned(self, vocab_size: int, ends: bool) -> list[int]:
        """Tokens that must not come next: they would end a bad word, or the answer before its minimum length (unless
        its grammar ends there)."""
        found = [word[-1] for word in self._bad_words if _ends_with(self._outputs, word[:-1])]
        if len(self._outputs) < self._min_tokens and not ends:
            found.extend(self._suppressed.tolist())
        return [token for token in found if token < vocab_size]

    def apply(self, logits: NDArray[np.float32], ends: bool = False) -> None:
        """Change one row of logits [V] in place; `ends` as in `fill`."""
        if self._allowed.size:
            kept = logits[self._allowed]
            logits.fill(_NOTHING)
            logits[self._allowed] = kept
        logits[self._banned(logits.size, ends)] = _NOTHING
        if self._bias.size:
            logits[self._bias_ids] += self._bias
        if self._penalties is not None:
            self._penalties.apply(logits)


def _ids(tokens: Iterable[int]) -> NDArray[np.int64]:
    return np.array(sorted(set(tokens)), dtype=np.int64)


def _ends_with(tokens: Sequence[int], suffix: Sequence[int]) -> bool:
    return len(suffix) <= len(tokens) and list(tokens[len(tokens) - len(suffix) :]) == list(suffix)
