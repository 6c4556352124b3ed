"""One choice of an answer: its text, stop strings and counts, token event by token event.

Owns: `Choice` and the deltas it makes. Knows nothing of HTTP, event loops or who asked; the offline door uses it too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turret.messages import FinishReason, TokenEvent, TokenLogprobs
from turret.sampling import SamplingParams
from turret.server.parts import OutputSide

__all__ = ["Choice", "ChoiceDelta"]


class ChoiceDelta(msgspec.Struct):
    """What one event added to choice `index`.

    `finish_reason` is set on the last delta of a choice. `stop_reason` is the stop string or stop token id that ended
    it, None for end-of-sequence. `logprobs` are parallel to `token_ids`. `prompt_logprobs` come with the first delta.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class Choice:
    """Progress of one sequence. `output` is None when no text is wanted (detokenize=False)."""

    def __init__(self, index: int, request_id: str, params: SamplingParams, output: OutputSide | None) -> None:
        self.index = index
        self.request_id = request_id
        self.num_tokens = 0
        self.num_cached_tokens = 0
        self.finished = False
        self.needs_abort = False
        self._output = output
        self._keep_stop = params.include_stop_str_in_output
        self._stepwise = bool(params.stop_strings)

    def advance(self, event: TokenEvent) -> ChoiceDelta:
        """What `event` adds. Sets `needs_abort` when a stop string ended the choice before the engine did."""
        ids, ended = event.token_ids, event.finish_reason
        text, used = self._text_of(ids, ended is FinishReason.STOP and not self._keep_stop)
        stop_reason: int | str | None = event.stop_reason
        reason = None if ended is None else ended.value
        if self._output is not None and self._output.stop_reason is not None:
            stop_reason, reason = self._output.stop_reason, FinishReason.STOP.value
            self.needs_abort = ended is None
        elif ended is not None and self._output is not None:
            text += self._output.finish()
        self.finished = reason is not None
        self.num_tokens += used
        self.num_cached_tokens = max(self.num_cached_tokens, event.num_cached_tokens)
        cut = used < len(ids)
        return ChoiceDelta(
            self.index,
            text,
            ids[:used] if cut else ids,
            event.logprobs[:used] if cut and event.logprobs else event.logprobs,
            event.prompt_logprobs,
            reason,
            stop_reason,
        )

    def _text_of(self, ids: Sequence[int], hide_last: bool) -> tuple[str, int]:
        """Text of `ids` and how many of them count: those after the one that completed a stop string do not."""
        if self._output is None:
            return "", len(ids)
        shown = ids[:-1] if hide_last else ids
        if not self._stepwise:
            return (self._output.feed(shown) if shown else ""), len(ids)
        pieces: list[str] = []
        for used, token_id in enumerate(shown, 1):
            pieces.append(self._output.feed((token_id,)))
            if self._output.stop_reason is not None:
                return "".join(pieces), used
        return "".join(pieces), len(ids)
