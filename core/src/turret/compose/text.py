"""The text side that both doors use, as the options describe it.

Owns: the translation of options for finding a model and its tokenizer. Knows nothing of HTTP.
"""

from __future__ import annotations

import msgspec

from turret.checkpoint import Checkpoint, ResolveOptions
from turret.config import Config
from turret.text import TextOptions, TextProcessor, TokenizerOptions

__all__ = ["open_text", "resolve_options"]


def resolve_options(config: Config) -> ResolveOptions:
    """How the options say a model is found."""
    return ResolveOptions(
        revision=config.model.revision,
        token=config.model.hf_token,
        download_dir=config.load.download_dir,
        ignore_patterns=tuple(config.load.ignore_patterns),
        need_weights=config.load.load_format != "dummy",
    )


def open_text(config: Config, checkpoint: Checkpoint, max_model_len: int) -> TextProcessor:
    """Tokenizer and templates as the options say."""
    tokenizer = TokenizerOptions(
        reference=config.model.tokenizer,
        mode=config.model.tokenizer_mode,
        trust_remote_code=config.model.trust_remote_code,
        hub=msgspec.structs.replace(resolve_options(config), revision=config.model.tokenizer_revision),
    )
    options = TextOptions(
        tokenizer=tokenizer,
        chat_template=config.model.chat_template,
        max_model_len=max_model_len,
        skip_tokenizer=config.model.skip_tokenizer_init,
    )
    return TextProcessor.open(checkpoint, options)
