"""A tokenizer that exists only in transformers, behind the same face as the fast one.

Owns: the calls into such an object. Knows nothing of how it was loaded. Python tokenizers are not safe to share between
threads, so calls are serialised.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from turret.text.detokenizer import Detokenizer, WindowDetokenizer
from turret.text.tokenizer import SpecialTokens

__all__ = ["TransformersTokenizer"]


class TransformersTokenizer:
    """A `transformers` tokenizer of any kind."""

    def __init__(self, inner: Any, specials: SpecialTokens) -> None:
        self._inner = inner
        self._specials = specials
        self._special_ids = frozenset(inner.all_special_ids)
        self._lock = threading.Lock()

    @property
    def specials(self) -> SpecialTokens:
        return self._specials

    @property
    def special_ids(self) -> frozenset[int]:
        return self._special_ids

    @property
    def vocab_size(self) -> int:
        return len(self._inner)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        with self._lock:
            return list(self._inner.encode(text, add_special_tokens=add_special_tokens))

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        return [self.encode(text, add_special_tokens) for text in texts]

    def decode(
        self, token_ids: Sequence[int], skip_special_tokens: bool = True, spaces_between_special_tokens: bool = True
    ) -> str:
        with self._lock:
            return str(
                self._inner.decode(
                    list(token_ids),
                    skip_special_tokens=skip_special_tokens,
                    spaces_between_special_tokens=spaces_between_special_tokens,
                    clean_up_tokenization_spaces=False,
                )
            )

    def detokenizer(
        self,
        prompt_token_ids: Sequence[int] = (),
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        shown: frozenset[int] = frozenset(),
    ) -> Detokenizer:
        decode = partial(
            self.decode, skip_special_tokens=False, spaces_between_special_tokens=spaces_between_special_tokens
        )
        skip = self._special_ids - shown if skip_special_tokens else frozenset()
        return WindowDetokenizer(decode, skip, prompt_token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return self.decode([token_id], skip_special_tokens=False).encode("utf-8")

    def piece(self, token_id: int) -> str | None:
        with self._lock:
            piece = self._inner.convert_ids_to_tokens(token_id) if 0 <= token_id < len(self._inner) else None
        return piece if isinstance(piece, str) else None

    def token_id(self, piece: str) -> int | None:
        return self.vocab().get(piece)

    def vocab(self) -> dict[str, int]:
        with self._lock:
            return dict(self._inner.get_vocab())
