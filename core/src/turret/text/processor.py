"""Everything about text that a front door needs for one model: tokenizer, chat template, context length.

Owns: the rules that need all of these together (prompts that are too long, truncation, bad words). Knows nothing of
engines or of HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from turret.checkpoint import Checkpoint
from turret.errors import ConfigError, RequestError
from turret.sampling import SamplingParams
from turret.text.chat import ChatOptions, ChatTemplate, read_template
from turret.text.load import TokenizerOptions, load_tokenizer
from turret.text.output import OutputText
from turret.text.stops import StopAutomaton
from turret.text.tokenizer import Tokenizer

__all__ = ["ChatPrompt", "TextOptions", "TextProcessor", "Truncation"]

_CHAT = ChatOptions()


class TextOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a front door may set: the tokenizer, a chat template (text or path) that replaces the model's, the context
    length (None: the checkpoint's), and `skip_tokenizer` for token ids in, token ids out."""

    tokenizer: TokenizerOptions = TokenizerOptions()
    chat_template: str | None = None
    max_model_len: int | None = None
    skip_tokenizer: bool = False


class Truncation(msgspec.Struct, frozen=True):
    """Keep `tokens` of a prompt that has more: -1 means as many as the context holds with one token left to generate.
    `side` is the side that is cut off."""

    tokens: int
    side: Literal["left", "right"] = "left"


class ChatPrompt(msgspec.Struct, frozen=True):
    """A rendered conversation and its token ids."""

    text: str
    token_ids: list[int]


class TextProcessor:
    """Prompts in, text out, for one model. Built once; serves any number of threads."""

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        templates: Mapping[str, str],
        max_model_len: int | None = None,
        eos_token_ids: Sequence[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        names = tokenizer.specials.names if tokenizer is not None else {}
        self._special_names = dict(names)
        self._templates = {name: ChatTemplate(source, names) for name, source in templates.items()}
        self.max_model_len = max_model_len
        own = tokenizer.specials.eos_token_id if tokenizer is not None else None
        self.eos_token_ids = tuple(dict.fromkeys([*eos_token_ids, *([own] if own is not None else [])]))
        """Ids that end a sequence: those the model's configs name, and the tokenizer's own."""
        # The sequences of a call, and often those of many calls, share their stop strings.
        self._automaton = lru_cache(maxsize=16)(StopAutomaton)

    @classmethod
    def open(cls, checkpoint: Checkpoint, options: TextOptions = TextOptions()) -> TextProcessor:  # noqa: B008 - frozen
        """The processor for a checkpoint. Raises LoadError or ConfigError."""
        tokenizer = None if options.skip_tokenizer else load_tokenizer(checkpoint, options.tokenizer)
        templates: Mapping[str, str] = checkpoint.chat_templates
        if options.chat_template is not None:
            given = options.chat_template
            templates = {"default": templates[given] if given in templates else read_template(given)}
        return cls(tokenizer, templates, options.max_model_len or checkpoint.max_context, checkpoint.eos_token_ids)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises RequestError when the server runs without one."""
        if self._tokenizer is None:
            raise RequestError("this server runs without a tokenizer (--skip-tokenizer-init): send token ids", "prompt")
        return self._tokenizer

    @property
    def has_tokenizer(self) -> bool:
        """False when token ids go in and out untouched."""
        return self._tokenizer is not None

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The template used when a request names none; None when the model has none."""
        return self._templates.get("default")

    def limit_context(self, max_model_len: int) -> None:
        """The context's true length, known once the engine is up. Before the first prompt."""
        self.max_model_len = max_model_len

    def describe(self) -> dict[str, Any]:
        """The tokenizer's class, special tokens, sizes and the chat template, by the names of Hugging Face's files."""
        tokenizer = self.tokenizer
        template = self.chat_template
        return {
            "tokenizer_class": type(tokenizer).__name__, **self._special_names,
            "vocab_size": tokenizer.vocab_size, "model_max_length": self.max_model_len,
            "special_token_ids": sorted(tokenizer.special_ids),
            "chat_template": None if template is None else template.source,
        }  # fmt: skip

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], options: ChatOptions = _CHAT, template: str | None = None
    ) -> str:
        """The prompt text of a conversation; `template` is a name the model knows or a template of the request's own.

        Raises RequestError when there is no template, or it refuses these messages.
        """
        return self._pick(template, options).render(messages, options)

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], options: ChatOptions = _CHAT, template: str | None = None,
        *, add_special_tokens: bool = False, truncation: Truncation | None = None,
    ) -> ChatPrompt:  # fmt: skip
        """A conversation rendered and tokenized. Templates write bos themselves, so no special tokens are added."""
        text = self.render_chat(messages, options, template)
        return ChatPrompt(text, self.encode_prompt(text, add_special_tokens, truncation, param="messages"))

    def encode_prompt(
        self, prompt: str | Sequence[int], add_special_tokens: bool = True, truncation: Truncation | None = None,
        *, param: str = "prompt",
    ) -> list[int]:  # fmt: skip
        """Token ids of a prompt (text, or ids, which are checked and copied).

        Raises RequestError for an empty prompt, ids outside the vocabulary, and a prompt too long.
        """
        if isinstance(prompt, str):
            self._refuse_absurd(prompt, truncation, param)
            ids = self.tokenizer.encode(prompt, add_special_tokens)
        else:
            if truncation is None:
                self._refuse_too_long(len(prompt), param)
            ids = self._checked_ids(prompt, param)
        ids = self._truncated(ids, truncation)
        if not ids:
            raise RequestError(f"{param} is empty: there is nothing to continue", param)
        self._refuse_too_long(len(ids), param)
        return ids

    def special_ids(self, tokens: Iterable[str]) -> frozenset[int]:
        """Ids of those of the tokens that are special; the others are ordinary text."""
        if self._tokenizer is None:
            return frozenset()
        found = {self._tokenizer.token_id(token) for token in tokens}
        return frozenset(i for i in found if i is not None) & self._tokenizer.special_ids

    def output(
        self, sampling: SamplingParams, prompt_token_ids: Sequence[int] = (), shown: frozenset[int] = frozenset()
    ) -> OutputText:
        """The text of one sequence that continues `prompt_token_ids`; special tokens in `shown` are text anyhow."""
        automaton = self._automaton(tuple(sampling.stop_strings)) if sampling.stop_strings else None
        return OutputText(self._tokenizer, sampling, prompt_token_ids, automaton, shown)

    def bad_words_ids(self, words: Sequence[str] | None) -> list[list[int]]:
        """Token sequences that spell the words inside a text, each without and with a space before it."""
        found: list[list[int]] = []
        for word in words or ():
            bare = word.lstrip(" ")
            for text in (bare, " " + bare) if bare else (word,):
                ids = self._encode_inside(text)
                if not ids:
                    raise RequestError(f"bad_words: {word!r} is not spelled by any token", "bad_words")
                if ids not in found:
                    found.append(ids)
        return found

    def _encode_inside(self, text: str) -> list[int]:
        """Ids of text that does not begin a document: SentencePiece puts a space before what does."""
        head = self.tokenizer.encode("\n", add_special_tokens=False)
        ids = self.tokenizer.encode("\n" + text, add_special_tokens=False)
        if ids[: len(head)] == head:
            return ids[len(head) :]
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _pick(self, template: str | None, options: ChatOptions) -> ChatTemplate:
        if template is not None and template not in self._templates:
            try:
                return ChatTemplate(template, self._special_names)
            except ConfigError as exc:
                raise RequestError(str(exc), "chat_template") from exc
        name = template or ("tool_use" if options.tools and "tool_use" in self._templates else "default")
        found = self._templates.get(name)
        if found is None:
            raise RequestError(
                "this model has no chat template: use /v1/completions, or start the server with --chat-template",
                "messages",
            )
        return found

    def _checked_ids(self, prompt: Sequence[int], param: str) -> list[int]:
        ids = list(prompt)
        size = self._tokenizer.vocab_size if self._tokenizer is not None else None
        for token_id in ids:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
                raise RequestError(f"{param} must hold token ids of at least 0, got {token_id!r}", param)
            if size is not None and token_id >= size:
                raise RequestError(f"{param} holds token id {token_id}, outside the vocabulary of {size} tokens", param)
        return ids

    def _truncated(self, ids: list[int], truncation: Truncation | None) -> list[int]:
        if truncation is None:
            return ids
        keep = truncation.tokens
        if keep < -1 or keep == 0:
            raise RequestError(f"truncate_prompt_tokens must be -1 or at least 1, got {keep}", "truncate_prompt_tokens")
        if self.max_model_len is not None and keep > self.max_model_len:
            raise RequestError(
                f"truncate_prompt_tokens is {keep}, more than the context length of {self.max_model_len} tokens",
                "truncate_prompt_tokens",
            )
        if keep == -1:
            keep = self.max_model_len - 1 if self.max_model_len is not None else len(ids)
        return ids[max(0, len(ids) - keep) :] if truncation.side == "left" else ids[:keep]

    def _refuse_too_long(self, count: int, param: str) -> None:
        if self.max_model_len is not None and count >= self.max_model_len:
            raise RequestError(
                f"This model's maximum context length is {self.max_model_len} tokens, but the prompt has {count} "
                "tokens and at least one must be generated. Shorten the prompt.",
                param,
            )

    def _refuse_absurd(self, text: str, truncation: Truncation | None, param: str) -> None:
        """Refuse, before tokenizing it, text that cannot fit whatever its tokens, or of which hardly anything stays."""
        if self.max_model_len is None:
            return
        limit = self.max_model_len * _MAX_CHARACTERS_PER_TOKEN * (1 if truncation is None else _MOST_CUT_OFF)
        if len(text) > limit:
            raise RequestError(
                f"This model's maximum context length is {self.max_model_len} tokens, and the {param} has {len(text)} "
                f"characters, more than so many tokens can hold ({limit}). Shorten the prompt.",
                param,
            )


_MAX_CHARACTERS_PER_TOKEN = 512
"""No known vocabulary has longer tokens (runs of spaces are the longest), even after composition of characters."""
_MOST_CUT_OFF = 16
"""How many contexts' worth of text a request with truncate_prompt_tokens may send: the tokens of all are in memory."""
