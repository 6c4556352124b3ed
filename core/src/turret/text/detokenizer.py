"""Incremental detokenization: token ids in, text out, for one sequence.

Owns: what of a sequence's text is already certain. Knows nothing of stop strings or of tokenizers' files.

The increments of any cut of the ids, with `finish()` at the end, concatenate to the decoding of all ids; a character
whose bytes are still incomplete is held back, so U+FFFD appears only where the whole text has it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

from turret.text.pieces import Pieces

__all__ = ["ByteDetokenizer", "Detokenizer", "WindowDetokenizer"]

_REPLACEMENT = "\ufffd"
_CONTINUATION = (0x80, 0xBF)
"""First and last of the bytes that go on with a character of several."""
_PROMPT_TAIL = 8
"""Prompt tokens that prime a detokenizer: enough to complete a character and to settle spaces at the seam."""
_MAX_HELD = 32
"""Tokens a window holds back at most: no character takes more, so text that still ends in U+FFFD then really does, and
tokens that show nothing do not pile up."""


class Detokenizer(Protocol):
    """Text of one sequence, piece by piece."""

    def push(self, token_ids: Sequence[int]) -> str:
        """Text that became certain with these further ids; may be empty."""

    def finish(self) -> str:
        """What is still held back; the sequence ends here."""


class ByteDetokenizer:
    """Joins the tokens' bytes and reads them as UTF-8; constant work per token.

    `prompt_token_ids` primes it: the text then continues the prompt (a leading space is text, not a decoder's artefact,
    and a character begun in the prompt is completed; one that is not was broken in the prompt, and no part of this
    text). Tokens in `skip` are silent.
    """

    def __init__(self, pieces: Pieces, skip: frozenset[int], prompt_token_ids: Sequence[int] = ()) -> None:
        self._bytes_of = pieces.bytes_of
        self._skip = skip
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = pieces.strips_leading_space and not prompt_token_ids
        self._decoder.decode(self._join(prompt_token_ids[-_PROMPT_TAIL:]))
        self._at_seam = bool(self._decoder.getstate()[0])  # only the prompt's half of a character is there so far

    def push(self, token_ids: Sequence[int]) -> str:
        data = self._join(token_ids)
        if self._at_seam and data:
            self._at_seam = False
            if not _CONTINUATION[0] <= data[0] <= _CONTINUATION[1]:
                self._decoder.reset()
        return self._stripped(self._decoder.decode(data))

    def finish(self) -> str:
        return "" if self._at_seam else self._stripped(self._decoder.decode(b"", final=True))

    def _join(self, token_ids: Sequence[int]) -> bytes:
        skip, bytes_of = self._skip, self._bytes_of
        return b"".join([bytes_of(i) for i in token_ids if i not in skip])

    def _stripped(self, text: str) -> str:
        if self._strip and text:
            self._strip = False
            return text[1:] if text[0] == " " else text
        return text


class WindowDetokenizer:
    """For decoders that are not byte by byte: decodes a short window of tokens again and emits what it adds.

    The window begins at the tokens emitted last, which give the new ones their context (spaces between words).
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], skip: frozenset[int], prompt_token_ids: Sequence[int] = ()
    ) -> None:
        self._decode = decode
        self._skip = skip
        self._window = [i for i in prompt_token_ids[-_PROMPT_TAIL:] if i not in skip]
        self._context = len(self._window)  # tokens of the window that are emitted already
        shown = decode(self._window) if self._window else ""
        self._emitted = shown.rstrip(_REPLACEMENT)
        self._broken = shown[len(self._emitted) :]  # what the prompt begins and this text may complete

    def push(self, token_ids: Sequence[int]) -> str:
        return "".join([self._one(i) for i in token_ids if i not in self._skip])

    def finish(self) -> str:
        return self._advance(self._decode(self._window)) if len(self._window) > self._context else ""

    def _one(self, token_id: int) -> str:
        self._window.append(token_id)
        text = self._decode(self._window)
        full = len(self._window) - self._context >= _MAX_HELD
        if len(text) <= len(self._emitted):
            if full:
                del self._window[self._context :]  # silent tokens; the context before them still counts
            return ""
        return "" if text.endswith(_REPLACEMENT) and not full else self._advance(text)

    def _advance(self, text: str) -> str:
        new = text[len(self._emitted) :].removeprefix(self._broken)
        self._broken = ""
        self._window = self._window[self._context :]
        self._context = len(self._window)
        self._emitted = self._decode(self._window)
        return new
