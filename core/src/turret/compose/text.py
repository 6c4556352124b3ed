"""The text side as the front doors see it.

Owns: `ServedText`, which gives a `TextProcessor` the shape of the server's `TextSide`. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turret.checkpoint import Checkpoint, ResolveOptions
from turret.config import Config
from turret.sampling import SamplingParams
from turret.text import ChatOptions, ContentFormat, OutputText, TextOptions, TextProcessor, TokenizerOptions

__all__ = ["ServedOutput", "ServedText", "open_text", "resolve_options"]


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


class ServedOutput:
    """One choice's text."""

    def __init__(self, output: OutputText) -> None:
        self._output = output
        self.stop_reason: str | None = None

    def feed(self, token_ids: Sequence[int]) -> str:
        """Text that is safe to show."""
        return self._taken(self._output.push(token_ids))

    def finish(self) -> str:
        """Text held back so far."""
        return self._taken(self._output.push((), finished=True))

    def _taken(self, delta: Any) -> str:
        self.stop_reason = delta.stop_reason
        return str(delta.text)


class ServedText:
    """Tokenizer, template and detokenizer of one model."""

    def __init__(self, processor: TextProcessor, content_format: str = "auto") -> None:
        self._processor = processor
        self._format = ContentFormat(content_format)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        return self._processor.tokenizer.encode(text, add_special_tokens)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids."""
        return self._processor.tokenizer.decode(token_ids, skip_special_tokens)

    def token_text(self, token_id: int) -> str:
        """How one token reads on its own."""
        return self._processor.tokenizer.decode([token_id], False)

    def render_chat(self, messages: list[dict[str, Any]], **options: Any) -> str:
        """The prompt text of a conversation."""
        template = options.pop("chat_template", None)
        kwargs = options.pop("chat_template_kwargs", None) or {}
        return self._processor.render_chat(
            messages, ChatOptions(kwargs=kwargs, content_format=self._format, **options), template
        )

    def open_output(self, params: SamplingParams, prompt_token_ids: Sequence[int]) -> ServedOutput:
        """A detokenizer for one choice."""
        return ServedOutput(self._processor.output(params, prompt_token_ids))
