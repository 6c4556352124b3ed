"""The vocabulary as grammars need it: what each token stands for, and which ones end an answer.

Owns: `grammar_vocabulary`. Knows no grammar.
"""

from __future__ import annotations

from collections.abc import Sequence

from turret.contracts import Vocabulary
from turret.text.tokenizer import Tokenizer

__all__ = ["grammar_vocabulary"]


def grammar_vocabulary(tokenizer: Tokenizer, eos_token_ids: Sequence[int]) -> Vocabulary:
    """Bytes of each token; special tokens are no text. `eos_token_ids` are those of the model's configs."""
    own = tokenizer.specials.eos_token_id
    stops = dict.fromkeys([*eos_token_ids, *([] if own is None else [own])])
    silent = tokenizer.special_ids | set(stops)
    size = tokenizer.vocab_size
    tokens = [b"" if token in silent else tokenizer.token_bytes(token) for token in range(size)]
    return Vocabulary(tokens, tuple(token for token in stops if token < size))
