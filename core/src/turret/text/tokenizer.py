"""The tokenizer that the rest of turret sees, and its fast form over the `tokenizers` library.

Owns: text to ids and ids to text. Knows nothing of files, chats or stop strings.

Nothing here changes after construction, so one tokenizer serves any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import tokenizers

from turret.errors import RequestError
from turret.text.detokenizer import ByteDetokenizer, Detokenizer, WindowDetokenizer
from turret.text.pieces import pieces_of

__all__ = ["FastTokenizer", "SpecialTokens", "Tokenizer"]


class SpecialTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens with a role. `names` is what chat templates get: "bos_token", "eos_token", ... to the token's text."""

    bos_token_id: int | None = None
    eos_token_id: int | None = None
    names: dict[str, str] = {}


class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def specials(self) -> SpecialTokens:
        """Tokens with a role."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that `skip_special_tokens` leaves out."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id the tokenizer knows; a model's own vocabulary may be padded beyond it."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of `text`, with the tokens the model expects around it (bos, eos) if asked."""

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """Ids of each text."""

    def decode(
        self, token_ids: Sequence[int], skip_special_tokens: bool = True, spaces_between_special_tokens: bool = True
    ) -> str:
        """The text of ids."""

    def detokenizer(
        self,
        prompt_token_ids: Sequence[int] = (),
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        shown: frozenset[int] = frozenset(),
    ) -> Detokenizer:
        """A detokenizer for one sequence; with a prompt, for the text that continues it.

        Special tokens in `shown` are text even where the others are skipped.
        """

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for, alone (a character may be split between tokens)."""

    def piece(self, token_id: int) -> str | None:
        """The vocabulary's own spelling of a token ("Ġthe", "▁the"); None outside the vocabulary."""

    def token_id(self, piece: str) -> int | None:
        """The id of a vocabulary entry by its own spelling."""

    def vocab(self) -> dict[str, int]:
        """The whole vocabulary, added tokens included."""


class FastTokenizer:
    """A `tokenizers.Tokenizer` with the tokens that have a role.

    There are no spaces between special tokens to switch off here: these decoders add none.
    """

    def __init__(self, backend: tokenizers.Tokenizer, specials: SpecialTokens) -> None:
        # Truncation and padding stored in a file are for batches of training data, never for serving.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._specials = specials
        self._pieces = pieces_of(backend)
        added = backend.get_added_tokens_decoder()
        self._special_ids = frozenset(i for i, token in added.items() if token.special)
        self._vocab_size = max(backend.get_vocab_size(), *(i + 1 for i in added), 0)

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The library's object, for those that need it (grammars); not to be changed."""
        return self._backend

    @property
    def specials(self) -> SpecialTokens:
        return self._specials

    @property
    def special_ids(self) -> frozenset[int]:
        return self._special_ids

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        try:
            return self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        except (TypeError, UnicodeEncodeError) as exc:
            raise _not_unicode(text, exc) from None

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        try:
            encoded = self._backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        except (TypeError, UnicodeEncodeError) as exc:
            raise _not_unicode("".join(texts), exc) from None
        return [e.ids for e in encoded]

    def decode(
        self, token_ids: Sequence[int], skip_special_tokens: bool = True, spaces_between_special_tokens: bool = True
    ) -> str:
        if self._pieces is None:
            return self._backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        stream = self.detokenizer((), skip_special_tokens)
        return stream.push(token_ids) + stream.finish()

    def detokenizer(
        self,
        prompt_token_ids: Sequence[int] = (),
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        shown: frozenset[int] = frozenset(),
    ) -> Detokenizer:
        skip = self._special_ids - shown if skip_special_tokens else frozenset()
        if self._pieces is not None:
            return ByteDetokenizer(self._pieces, skip, prompt_token_ids)
        return WindowDetokenizer(self._decode_all, skip, prompt_token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        if self._pieces is not None:
            return self._pieces.bytes_of(token_id)
        return self._decode_all([token_id]).encode("utf-8")

    def piece(self, token_id: int) -> str | None:
        return self._backend.id_to_token(token_id) if 0 <= token_id < 1 << 32 else None

    def token_id(self, piece: str) -> int | None:
        return self._backend.token_to_id(piece)

    def vocab(self) -> dict[str, int]:
        return self._backend.get_vocab(with_added_tokens=True)

    def _decode_all(self, token_ids: Sequence[int]) -> str:
        return self._backend.decode(list(token_ids), skip_special_tokens=False)


def _not_unicode(text: str, cause: Exception) -> RequestError:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as exc:
        return RequestError(f"text is not valid Unicode: a lone surrogate at character {exc.start}", "prompt")
    return RequestError(f"text cannot be tokenized: {cause}", "prompt")
