"""Token ids to bytes, for the two decoders that nearly every language model uses.

Owns: what bytes one token stands for under byte-level BPE and under SentencePiece-style BPE with byte fallback. Knows
nothing of sequences. Text is bytes joined and read as UTF-8; that is what makes streaming exact and cheap: a token's
bytes depend on the token alone.

Source of the byte alphabet: GPT-2's tokenizer, in which 188 printable characters stand for themselves and the other
68 bytes for the code points from 256 on.
"""

from __future__ import annotations

import json
import re
from typing import Any

import tokenizers

__all__ = ["ByteFallbackPieces", "ByteLevelPieces", "Pieces", "pieces_of"]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_MARK = "\u2581"


def _byte_alphabet() -> dict[str, int]:
    """Byte by character of the GPT-2 alphabet."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(b): b for b in printable}
    others = (b for b in range(256) if b not in set(printable))
    return alphabet | {chr(256 + i): b for i, b in enumerate(others)}


class ByteLevelPieces:
    """Bytes of tokens of a byte-level vocabulary; an added token outside the alphabet stands for its own UTF-8."""

    strips_leading_space = False

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._alphabet = _byte_alphabet()
        self._known: dict[int, bytes] = {}

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes of one token; empty for an id outside the vocabulary."""
        known = self._known.get(token_id)
        if known is None:
            known = self._known[token_id] = self._compute(token_id)
        return known

    def _compute(self, token_id: int) -> bytes:
        piece = _piece(self._backend, token_id)
        try:
            return bytes([self._alphabet[c] for c in piece])
        except KeyError:
            return piece.encode("utf-8")


class ByteFallbackPieces:
    """Bytes of tokens of a SentencePiece-style vocabulary: "▁" is a space, "<0xE4>" is one byte."""

    def __init__(self, backend: tokenizers.Tokenizer, strips_leading_space: bool) -> None:
        self.strips_leading_space = strips_leading_space
        self._backend = backend
        self._known: dict[int, bytes] = {}

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes of one token; empty for an id outside the vocabulary."""
        known = self._known.get(token_id)
        if known is None:
            known = self._known[token_id] = self._compute(token_id)
        return known

    def _compute(self, token_id: int) -> bytes:
        piece = _piece(self._backend, token_id)
        match = _BYTE_TOKEN.fullmatch(piece)
        if match is not None:
            return bytes([int(match[1], 16)])
        return piece.replace(_SPACE_MARK, " ").encode("utf-8")


Pieces = ByteLevelPieces | ByteFallbackPieces


def pieces_of(backend: tokenizers.Tokenizer) -> Pieces | None:
    """The bytes behind `backend`'s tokens; None when its decoder is of another kind and must be asked itself."""
    chain = _decoder_chain(backend)
    kinds = [step["type"] for step in chain]
    if kinds == ["ByteLevel"]:
        return ByteLevelPieces(backend)
    if kinds[:3] != ["Replace", "ByteFallback", "Fuse"] or not _is_space_mark(chain[0]):
        return None
    if kinds[3:] == []:
        return ByteFallbackPieces(backend, strips_leading_space=False)
    if kinds[3:] == ["Strip"] and (chain[3]["content"], chain[3]["start"], chain[3]["stop"]) == (" ", 1, 0):
        return ByteFallbackPieces(backend, strips_leading_space=True)
    return None


def _decoder_chain(backend: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    if backend.decoder is None:
        return []
    state = json.loads(backend.decoder.__getstate__())
    return state["decoders"] if state["type"] == "Sequence" else [state]


def _is_space_mark(step: dict[str, Any]) -> bool:
    return step.get("pattern") == {"String": _SPACE_MARK} and step.get("content") == " "


def _piece(backend: tokenizers.Tokenizer, token_id: int) -> str:
    if not 0 <= token_id < 1 << 32:
        return ""
    return backend.id_to_token(token_id) or ""
