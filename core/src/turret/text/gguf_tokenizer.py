"""Builds a tokenizer from the metadata of a GGUF file.

Owns: the two vocabularies that GGUF language models carry: byte-level BPE ("gpt2") and SentencePiece BPE ("llama").
Knows nothing of weights. Any other kind is refused with a way out, never approximated.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from turret.checkpoint import GgufFile, open_gguf
from turret.errors import LoadError, NotSupportedError
from turret.text.splits import SPLITS
from turret.text.tokenizer import FastTokenizer, SpecialTokens

__all__ = ["tokenizer_from_gguf"]

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
_SPACE_MARK = "\u2581"
_ROLES = (("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding"))


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """What a GGUF file says of its tokens; `kinds` are token types (1 normal, 3 control, 4 user-defined, 6 byte)."""

    file: GgufFile
    tokens: list[str]
    kinds: list[int]

    def token_id(self, role: str) -> int | None:
        value = self.file.metadata.get(f"tokenizer.ggml.{role}_token_id")
        if value is None:
            return None
        if not isinstance(value, int) or not 0 <= value < len(self.tokens):
            raise LoadError(f"{self.file.path}: tokenizer.ggml.{role}_token_id is {value!r}, outside the vocabulary")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.file.metadata.get(f"tokenizer.ggml.{name}", default))


def tokenizer_from_gguf(path: str | Path) -> FastTokenizer:
    """The tokenizer that a GGUF file carries.

    Raises LoadError for malformed metadata, NotSupportedError for a kind that turret does not build.
    """
    file = open_gguf(path)
    vocabulary = _read_vocabulary(file)
    model = file.metadata.get("tokenizer.ggml.model")
    try:
        if model == "gpt2":
            backend, default_bos = _byte_level(vocabulary)
        elif model == "llama":
            backend, default_bos = _sentencepiece(vocabulary), True
        else:
            raise NotSupportedError(
                f"{path}: the file's tokenizer is of kind {model!r}, which turret does not build; "
                "name the original one with --tokenizer"
            )
        _add_marked_tokens(backend, vocabulary)
        _add_ends(backend, vocabulary, default_bos)
    except (LoadError, NotSupportedError):
        raise
    except Exception as exc:  # the library raises bare exceptions on inconsistent vocabularies
        raise LoadError(f"{path}: the tokenizer in the file is inconsistent: {exc}") from exc
    return FastTokenizer(backend, _specials(vocabulary))


def _read_vocabulary(file: GgufFile) -> _Vocabulary:
    tokens = file.strings("tokenizer.ggml.tokens")
    if not tokens:
        raise LoadError(f"{file.path}: the file carries no tokenizer; name one with --tokenizer")
    kinds = file.numbers("tokenizer.ggml.token_type")
    if kinds is None:
        kinds = [_NORMAL] * len(tokens)
    if len(kinds) != len(tokens):
        raise LoadError(f"{file.path}: {len(tokens)} tokens but {len(kinds)} token types")
    return _Vocabulary(file, tokens, [int(k) for k in kinds])


def _byte_level(v: _Vocabulary) -> tuple[Tokenizer, bool]:
    name = v.file.metadata.get("tokenizer.ggml.pre")
    rule = SPLITS.get(name) if isinstance(name, str) else None
    if rule is None:
        raise NotSupportedError(
            f"{v.file.path}: the file's pre-tokenizer is {name!r}, which turret does not know; "
            "name the original tokenizer with --tokenizer"
        )
    vocab = {token: i for i, token in enumerate(v.tokens)}
    merges = _stored_merges(v, vocab)
    if merges is None:
        raise LoadError(f"{v.file.path}: metadata tokenizer.ggml.merges is missing")
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=rule.ignore_merges))
    if rule.nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = rule.build()
    backend.decoder = decoders.ByteLevel()
    return backend, rule.default_bos


def _stored_merges(v: _Vocabulary, vocab: dict[str, int]) -> list[tuple[str, str]] | None:
    """The file's merges, each checked against the vocabulary: the library does not survive one that is not in it."""
    stored = v.file.strings("tokenizer.ggml.merges")
    if stored is None:
        return None
    merges = []
    for i, merge in enumerate(stored):
        cut = merge.find(" ", 1)  # a piece may itself begin with a space
        left, right = merge[:cut], merge[cut + 1 :]
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise LoadError(f"{v.file.path}: merge {i} ({merge!r}) makes or uses a token outside the vocabulary")
        merges.append((left, right))
    return merges


def _sentencepiece(v: _Vocabulary) -> Tokenizer:
    # Gemma's runs of spaces are stored as spaces; in the vocabulary they are runs of the space mark.
    tokens = [_SPACE_MARK * len(t) if len(t) > 1 and not t.strip(" ") else t for t in v.tokens]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = _stored_merges(v, vocab) or _merges_from_ranks(vocab, _ranks(v, tokens))
    unknown = v.token_id("unknown")
    backend = Tokenizer(
        models.BPE(
            vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True,
            unk_token=tokens[unknown] if unknown is not None else None,
        )
    )  # fmt: skip
    prefix = v.flag("add_space_prefix", True)
    replace = normalizers.Replace(" ", _SPACE_MARK)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE_MARK), replace]) if prefix else replace
    chain = [decoders.Replace(_SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*chain, decoders.Strip(" ", 1, 0)] if prefix else chain)
    return backend


def _ranks(v: _Vocabulary, tokens: list[str]) -> dict[str, float]:
    """Rank of each piece that merging may produce; lower merges first.

    A piece's score says it, except in Gemma's files, where scores are flat and the order of the pieces says it.
    """
    scores = v.file.numbers("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(tokens):
        raise LoadError(f"{v.file.path}: metadata tokenizer.ggml.scores is missing or does not fit the tokens")
    by_order = str(v.file.metadata.get("general.architecture", "")).startswith("gemma")
    mergeable = (_NORMAL, _USER_DEFINED)
    return {
        token: float(i if by_order else -scores[i])
        for i, token in enumerate(tokens)
        if v.kinds[i] in mergeable and len(token) > 1
    }


def _merges_from_ranks(vocab: dict[str, int], ranks: dict[str, float]) -> list[tuple[str, str]]:
    """Every way to cut a piece in two pieces of the vocabulary, best-ranked piece first.

    SentencePiece merges the pair whose result ranks best, whatever its halves; a BPE merge list that holds all pairs in
    that order does the same. Pairs of one piece are ordered by the ids of their halves.
    """
    found: list[tuple[float, int, int, str, str]] = []
    for piece, rank in ranks.items():
        for cut in range(1, len(piece)):
            left = vocab.get(piece[:cut])
            if left is not None and (right := vocab.get(piece[cut:])) is not None:
                found.append((rank, left, right, piece[:cut], piece[cut:]))
    found.sort()
    return [(left, right) for _, _, _, left, right in found]


def _add_marked_tokens(backend: Tokenizer, v: _Vocabulary) -> None:
    """Control and user-defined tokens are matched whole in text; control tokens are special besides."""
    marked = [
        (v.tokens[i], kind)
        for i, kind in enumerate(v.kinds)
        if kind in (_CONTROL, _USER_DEFINED) and backend.token_to_id(v.tokens[i]) is not None
    ]
    backend.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, k in marked if k == _CONTROL])
    backend.add_tokens([AddedToken(t, normalized=False, special=False) for t, k in marked if k == _USER_DEFINED])


def _add_ends(backend: Tokenizer, v: _Vocabulary, default_bos: bool) -> None:
    bos = v.token_id("bos") if v.flag("add_bos_token", default_bos) else None
    eos = v.token_id("eos") if v.flag("add_eos_token", False) else None
    if bos is None and eos is None:
        return
    named = [(v.tokens[i], i) for i in (bos, eos) if i is not None]
    head = [f"{v.tokens[bos]}"] if bos is not None else []
    tail = [f"{v.tokens[eos]}"] if eos is not None else []
    second = [f"{t}:1" for t in head] + ["$B:1"] + [f"{t}:1" for t in tail]
    backend.post_processor = processors.TemplateProcessing(
        single=[*head, "$A", *tail], pair=[*head, "$A", *tail, *second], special_tokens=named
    )


def _specials(v: _Vocabulary) -> SpecialTokens:
    ids = {name: v.token_id(role) for name, role in _ROLES}
    return SpecialTokens(
        bos_token_id=ids["bos_token"],
        eos_token_id=ids["eos_token"],
        names={name: v.tokens[i] for name, i in ids.items() if i is not None},
    )
