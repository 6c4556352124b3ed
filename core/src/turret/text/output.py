"""The text of one generated sequence: detokenized, watched for stop strings, cut.

Owns: what of a sequence's text may be shown, and when it has to stop. Knows nothing of requests or of HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from turret.sampling import SamplingParams
from turret.text.stops import StopAutomaton, StopMatcher
from turret.text.tokenizer import Tokenizer

__all__ = ["OutputText", "TextDelta"]


class TextDelta(NamedTuple):
    """New text; the stop string that ended the sequence (None while there is none); how many of the pushed ids count.

    Ids after the one that completed the stop string do not count; that one does.
    """

    text: str
    stop_reason: str | None
    num_tokens: int


class OutputText:
    """Turns the token ids of one sequence into the text to show; the whole text does not depend on the cut of the ids.

    `prompt_token_ids` are what the sequence continues. Of `sampling` it uses stop, include_stop_str_in_output,
    min_tokens, skip_special_tokens, spaces_between_special_tokens and detokenize. Without a tokenizer, or with
    detokenize off, the text is empty. `stops` is the automaton of sampling.stop, for those who have it already.
    Special tokens in `shown` are text whatever is skipped.
    """

    def __init__(
        self, tokenizer: Tokenizer | None, sampling: SamplingParams, prompt_token_ids: Sequence[int] = (),
        stops: StopAutomaton | None = None, shown: frozenset[int] = frozenset(),
    ) -> None:  # fmt: skip
        self._detokenizer = None
        if tokenizer is not None and sampling.detokenize:
            self._detokenizer = tokenizer.detokenizer(
                prompt_token_ids, sampling.skip_special_tokens, sampling.spaces_between_special_tokens, shown
            )
        self._stops = StopMatcher(stops or sampling.stop_strings, sampling.include_stop_str_in_output)
        self._watching = bool(sampling.stop_strings)
        self._show_stop_token = sampling.include_stop_str_in_output
        self._min_tokens = sampling.min_tokens
        self._count = 0
        self._stop: str | None = None

    def push(self, token_ids: Sequence[int], finished: bool = False, *, stopped_by_token: bool = False) -> TextDelta:
        """Text that these further ids make certain; `finished` flushes what is held back.

        `stopped_by_token` says that the last id is an end-of-sequence or stop token: it shows in the text only with
        include_stop_str_in_output (and, if it is special, with skip_special_tokens off). Once a stop string was found,
        further ids are ignored.
        """
        if self._stop is not None:
            return TextDelta("", self._stop, 0)
        if self._detokenizer is None:
            return TextDelta("", None, len(token_ids))
        shown = token_ids[:-1] if stopped_by_token and not self._show_stop_token else token_ids
        pieces: list[str] = []
        if not self._watching:
            pieces.append(self._detokenizer.push(shown))
        else:
            for at, token_id in enumerate(shown):
                # One by one: only then is it known which token completed a stop string.
                self._count += 1
                if self._watch(self._detokenizer.push((token_id,)), pieces):
                    return TextDelta("".join(pieces), self._stop, at + 1)
        if finished and not self._watch(self._detokenizer.finish(), pieces):
            pieces.append(self._stops.flush())
        return TextDelta("".join(pieces), self._stop, len(token_ids))

    def _watch(self, text: str, pieces: list[str]) -> bool:
        """Pass text through the stop strings; True when one is complete."""
        match = self._stops.push(text, armed=self._count >= self._min_tokens)
        pieces.append(match.text)
        self._stop = match.stop
        return match.stop is not None
