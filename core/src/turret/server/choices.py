"""One choice of an answer: its text, stop strings and counts, token event by token event.

Owns: `Choice` and the deltas it makes. Knows nothing of HTTP, event loops or who asked; the offline door uses it too.
"""

from __future__ import annotations

import msgspec

from turret.messages import FinishReason, Request, TokenEvent, TokenLogprobs
from turret.server.repetition import RepetitionDetector
from turret.text import OutputText, TextProcessor

__all__ = ["Choice", "ChoiceDelta", "DeltaPacer"]


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
    """Progress of one sequence."""

    def __init__(
        self, index: int, request_id: str, output: OutputText, repetition: RepetitionDetector | None = None
    ) -> None:
        self.index = index
        self.request_id = request_id
        self.num_tokens = 0
        self.num_cached_tokens = 0
        self.finished = False
        self.needs_abort = False
        self._output = output
        self._repetition = repetition

    @classmethod
    def of(
        cls, index: int, request: Request, text: TextProcessor, shown: frozenset[int] = frozenset()
    ) -> Choice:
        """The choice that `request` is to fill; special tokens in `shown` are text in any case."""
        rule = request.sampling.repetition_detection
        output = text.output(request.sampling, request.prompt_token_ids, shown)
        return cls(index, request.request_id, output, None if rule is None else RepetitionDetector(rule))

    def advance(self, event: TokenEvent) -> ChoiceDelta:
        """What `event` adds. Sets `needs_abort` when the choice ended here, before it did for the engine."""
        ids, ended = event.token_ids, event.finish_reason
        circle = None if self._repetition is None else self._repetition.find(ids)
        text, stop, used = self._output.push(
            ids if circle is None else ids[:circle],
            finished=ended is not None or circle is not None,
            stopped_by_token=ended is FinishReason.STOP and circle in (None, len(ids)),
        )
        stop_reason: int | str | None = event.stop_reason
        reason = None if ended is None else ended.value
        if circle is not None and (ended is None or circle < len(ids)):
            reason, stop_reason = FinishReason.REPETITION.value, None
            self.needs_abort = ended is None
        if stop is not None:
            stop_reason, reason = stop, FinishReason.STOP.value
            self.needs_abort = ended is None
        self.finished = reason is not None
        self.num_tokens += used
        self.num_cached_tokens = max(self.num_cached_tokens, event.num_cached_tokens)
        logprobs = event.logprobs
        if used < len(ids):
            ids, logprobs = ids[:used], logprobs and logprobs[:used]
        return ChoiceDelta(self.index, text, ids, logprobs, event.prompt_logprobs, reason, stop_reason)


class DeltaPacer:
    """Gathers `interval` tokens of a choice before they are passed on; its first and last delta pass at once."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._gathered: dict[int, ChoiceDelta | None] = {}

    def pace(self, delta: ChoiceDelta) -> ChoiceDelta | None:
        """The delta to pass on now, if any."""
        if self._interval == 1:
            return delta
        index = delta.index
        if index not in self._gathered:
            self._gathered[index] = None
            return delta
        held = self._gathered[index]
        if held is not None:
            delta = _joined(held, delta)
        if delta.finish_reason is None and len(delta.token_ids) < self._interval:
            self._gathered[index] = delta
            return None
        self._gathered[index] = None
        return delta


def _joined(first: ChoiceDelta, second: ChoiceDelta) -> ChoiceDelta:
    logprobs = None if second.logprobs is None else [*(first.logprobs or ()), *second.logprobs]
    return ChoiceDelta(
        first.index,
        first.text + second.text,
        first.token_ids + second.token_ids,
        logprobs,
        first.prompt_logprobs or second.prompt_logprobs,
        second.finish_reason,
        second.stop_reason,
    )
