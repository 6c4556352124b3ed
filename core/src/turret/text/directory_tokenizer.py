"""Loads the tokenizer of a directory in Hugging Face layout.

Owns: what tokenizer.json and tokenizer_config.json say, and the way to tokenizers that exist only in transformers.
Knows nothing of chats. tokenizer.json is read by the `tokenizers` library directly; transformers, which is slow to
import, is used only where that file is missing or a Python tokenizer was asked for. As in transformers, what
tokenizer.json does at the ends of a text wins over add_bos_token and add_eos_token in the config.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from turret.checkpoint import RemoteCode, read_json
from turret.errors import LoadError
from turret.text.slow_tokenizer import TransformersTokenizer
from turret.text.tokenizer import FastTokenizer, SpecialTokens
from turret.text.tokenizer import Tokenizer as TurretTokenizer

__all__ = ["tokenizer_from_directory"]

NO_CODE = RemoteCode()
_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def tokenizer_from_directory(
    path: Path, *, mode: str = "auto", reference: str | None = None, code: RemoteCode = NO_CODE
) -> TurretTokenizer:
    """The tokenizer of `path`, where the files of `reference` lie. `mode` "auto" reads tokenizer.json; "hf" and "slow"
    go through transformers.

    Raises LoadError naming the file at fault.
    """
    config_path = path / "tokenizer_config.json"
    config = read_json(config_path) if config_path.is_file() else {}
    if mode == "auto" and (path / "tokenizer.json").is_file():
        return _fast(path, config)
    return _through_transformers(path, mode, *code.source(reference, path))


def _fast(path: Path, config: Mapping[str, Any]) -> FastTokenizer:
    file = path / "tokenizer.json"
    try:
        backend = Tokenizer.from_file(str(file))
    except Exception as exc:  # the library raises bare exceptions
        raise LoadError(f"{file}: not a tokenizer: {exc}") from exc
    side = path / "special_tokens_map.json"
    roles = (read_json(side) if side.is_file() else {}) | dict(config)
    names = {role: text for role in _ROLES if (text := _text_of(roles.get(role))) is not None}
    _add_declared(backend, config, file)
    _mark_special(backend, [*names.values(), *_extra(roles)])
    return FastTokenizer(backend, _specials(backend, names))


def _text_of(token: object) -> str | None:
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _extra(config: Mapping[str, Any]) -> list[str]:
    out: list[str] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        value = config.get(key) or ()
        items = value.values() if isinstance(value, Mapping) else value
        out.extend(text for item in items if (text := _text_of(item)) is not None)
    return out


def _add_declared(backend: Tokenizer, config: Mapping[str, Any], file: Path) -> None:
    """Tokens that only tokenizer_config.json declares; they must land on the ids it gives them."""
    declared = config.get("added_tokens_decoder") or {}
    for token_id, token in sorted(((int(k), v) for k, v in declared.items()), key=lambda item: item[0]):
        text = _text_of(token)
        if text is None or backend.token_to_id(text) is not None:
            continue
        flags = {k: bool(token.get(k, False)) for k in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        backend.add_tokens([AddedToken(text, **flags)])
        if backend.token_to_id(text) != token_id:
            raise LoadError(
                f"{file}: added token {text!r} should have id {token_id} but gets {backend.token_to_id(text)}; "
                "tokenizer.json and tokenizer_config.json do not belong together"
            )


def _mark_special(backend: Tokenizer, texts: list[str]) -> None:
    """Tokens with a role count as special even where tokenizer.json does not say so."""
    added = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    for text in texts:
        known = added.get(text)
        if backend.token_to_id(text) is None or (known is not None and known.special):
            continue
        backend.add_special_tokens([AddedToken(text, special=True, normalized=False)])


def _specials(backend: Tokenizer, names: Mapping[str, str]) -> SpecialTokens:
    def id_of(role: str) -> int | None:
        return backend.token_to_id(names[role]) if role in names else None

    return SpecialTokens(bos_token_id=id_of("bos_token"), eos_token_id=id_of("eos_token"), names=dict(names))


def _through_transformers(path: Path, mode: str, name: str, told: Mapping[str, Any]) -> TurretTokenizer:
    from transformers import AutoTokenizer  # slow to import, rarely needed

    try:
        loaded = AutoTokenizer.from_pretrained(
            name, **{"use_fast": mode != "slow", "local_files_only": True, **told}
        )
    except Exception as exc:  # transformers and its converters raise almost anything on missing or odd files
        raise LoadError(f"{path}: no tokenizer could be loaded from this directory: {exc}") from exc
    names = {role: text for role in _ROLES if isinstance(text := getattr(loaded, role, None), str)}
    specials = SpecialTokens(bos_token_id=loaded.bos_token_id, eos_token_id=loaded.eos_token_id, names=names)
    backend = getattr(loaded, "backend_tokenizer", None)
    if mode != "slow" and isinstance(backend, Tokenizer):
        return FastTokenizer(backend, specials)
    return TransformersTokenizer(loaded, specials)
