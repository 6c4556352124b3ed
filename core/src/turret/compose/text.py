"""The text side that both doors use, as the options describe it.

Owns: the translation of options for tokenizer and templates. Knows nothing of HTTP.
"""

from __future__ import annotations

from turret.checkpoint import Checkpoint
from turret.compose.find import tokenizer_options
from turret.config import Config
from turret.text import TextOptions, TextProcessor

__all__ = ["open_text"]


def open_text(config: Config, checkpoint: Checkpoint, max_model_len: int) -> TextProcessor:
    """Tokenizer and templates as the options say."""
    options = TextOptions(
        tokenizer=tokenizer_options(config),
        chat_template=config.model.chat_template,
        max_model_len=max_model_len,
        skip_tokenizer=config.model.skip_tokenizer_init,
    )
    return TextProcessor.open(checkpoint, options)
