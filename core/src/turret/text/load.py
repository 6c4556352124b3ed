"""Finds and loads the tokenizer of a checkpoint.

Owns: which source wins. Knows nothing of the formats themselves.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from turret.checkpoint import Checkpoint, RemoteCode, ResolveOptions, locate_directory
from turret.errors import LoadError
from turret.text.directory_tokenizer import tokenizer_from_directory
from turret.text.gguf_tokenizer import tokenizer_from_gguf
from turret.text.tokenizer import Tokenizer

__all__ = ["TokenizerOptions", "load_tokenizer"]


class TokenizerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which tokenizer to load: `reference` (directory, .gguf file or hub id) instead of the checkpoint's own; `mode`
    "auto", "hf" or "slow"; `hub` says how to look a hub id up, and `code` whether code shipped with it may run."""

    reference: str | None = None
    mode: str = "auto"
    code: RemoteCode = RemoteCode()
    hub: ResolveOptions = ResolveOptions()


_DEFAULT = TokenizerOptions()


def load_tokenizer(checkpoint: Checkpoint, options: TokenizerOptions = _DEFAULT) -> Tokenizer:
    """The tokenizer for `checkpoint`. Raises LoadError with what is missing and what to do."""
    path = Path(checkpoint.tokenizer_path)
    if options.reference is not None:
        path = locate_directory(options.reference, options.hub)
    if path.is_dir():
        return tokenizer_from_directory(
            path, mode=options.mode, reference=options.reference or checkpoint.reference, code=options.code
        )
    if path.suffix == ".gguf":
        if options.mode == "slow":
            raise LoadError(f"{path}: a GGUF file has no slow tokenizer; name a directory with --tokenizer")
        return tokenizer_from_gguf(path)
    raise LoadError(f"{path}: not a tokenizer: give a directory, a .gguf file or a hub id")
