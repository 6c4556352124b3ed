"""Log-probabilities in the shapes that OpenAI clients read.

Owns: token names, the floor for minus infinity, the order of alternatives. Knows nothing of routes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turret.messages import TokenLogprobs
from turret.server.wire import CompletionLogprobs, SamplingFields, TokenChance, TokenLogprob
from turret.text import TextProcessor

__all__ = ["LogprobWriter", "num_alternatives"]

FLOOR = -9999.0
"""Stands for minus infinity, which JSON cannot say."""


class LogprobWriter:
    """Writes log-probabilities; tokens read as text, or as `token_id:N` when `as_ids` (or without a tokenizer)."""

    def __init__(self, text: TextProcessor, as_ids: bool) -> None:
        self._text = text
        self._as_ids = as_ids or not text.has_tokenizer

    def name(self, token_id: int) -> str:
        """How a token is shown."""
        if self._as_ids:
            return f"token_id:{token_id}"
        return self._text.tokenizer.token_bytes(token_id).decode("utf-8", "replace")

    def chat(self, entries: Sequence[TokenLogprobs], top: int) -> list[TokenLogprob]:
        """Chat shape: per token exactly `top` alternatives, best first."""
        return [
            TokenLogprob(*self._chance(e.token_id, e.logprob), [
                TokenChance(*self._chance(i, p)) for i, p in list(zip(e.top_ids, e.top_logprobs, strict=True))[:top]
            ])
            for e in entries
        ]  # fmt: skip

    def completion(
        self, entries: Sequence[TokenLogprobs | int], top: int, offset: int
    ) -> tuple[CompletionLogprobs, int]:
        """Completions shape, and the text offset after the last entry.

        A bare token id stands for the first prompt token, of which nothing is known. The token that was taken is among
        the alternatives even when it is not one of the best, so there may be `top` + 1.
        """
        out = CompletionLogprobs([], [], [], [])
        for entry in entries:
            token_id = entry if isinstance(entry, int) else entry.token_id
            name = self.name(token_id)
            out.tokens.append(name)
            out.text_offset.append(offset)
            offset += len(name)
            if isinstance(entry, int):
                out.token_logprobs.append(None)
                out.top_logprobs.append(None)
                continue
            out.token_logprobs.append(_floor(entry.logprob))
            best = {self.name(i): _floor(p) for i, p in zip(entry.top_ids[:top], entry.top_logprobs, strict=False)}
            best.setdefault(name, _floor(entry.logprob))
            out.top_logprobs.append(best)
        return out, offset

    def prompt(self, entries: Sequence[TokenLogprobs]) -> list[dict[str, Any] | None]:
        """`prompt_logprobs`: null for the first token, then maps from token id to what is known of it."""
        return [None, *(self._prompt_entry(e) for e in entries)]

    def _prompt_entry(self, entry: TokenLogprobs) -> dict[str, Any]:
        known = {entry.token_id: (entry.logprob, entry.rank)}
        for rank, (token_id, logprob) in enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True), 1):
            known.setdefault(token_id, (logprob, rank))
        return {
            str(i): {"logprob": _floor(p), "rank": rank, "decoded_token": self.name(i)}
            for i, (p, rank) in known.items()
        }

    def _chance(self, token_id: int, logprob: float) -> tuple[str, float, list[int]]:
        name = self.name(token_id)
        raw = name.encode() if self._as_ids else self._text.tokenizer.token_bytes(token_id)
        return name, _floor(logprob), list(raw)


def num_alternatives(body: SamplingFields, wanted: int | None, vocab_size: int) -> int:
    """How many alternatives a token shows: those it was asked about, all for -1, or as many as `wanted`."""
    if body.logprob_token_ids:
        return len(body.logprob_token_ids)
    return vocab_size if wanted == -1 else wanted or 0


def _floor(logprob: float) -> float:
    """A log-probability that JSON can say."""
    return max(logprob, FLOOR)
