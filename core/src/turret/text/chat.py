"""Chat templates: a conversation to the prompt text a model was trained on.

Owns: compiling, choosing and rendering templates. Knows nothing of tokens beyond the names of special ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from jinja2.exceptions import TemplateError

from turret.errors import ConfigError, RequestError
from turret.text.content_format import ContentFormat, detect_content_format, handles_strings
from turret.text.conversation import normalize_messages
from turret.text.sandbox import ChatEnvironment, Limits

__all__ = ["ChatOptions", "ChatTemplate", "read_template"]

_RESERVED = frozenset({
    "messages", "tools", "documents", "chat_template", "tokenize", "add_generation_prompt", "continue_final_message",
})  # fmt: skip


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to render one conversation.

    `tools` are function declarations as the API takes them; `kwargs` are further template variables
    (`chat_template_kwargs`). `continue_final_message` leaves the last message open, for the model to go on with it.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    kwargs: dict[str, Any] = {}
    content_format: ContentFormat = ContentFormat.AUTO


class ChatTemplate:
    """One compiled template; renders from any number of threads.

    `special_tokens` are the variables bos_token, eos_token, ... Raises ConfigError when the source is not a template.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        if len(source) > Limits.SOURCE:
            raise ConfigError(
                f"the chat template has {len(source)} characters; {Limits.SOURCE} are allowed", "chat-template"
            )
        self.source = source
        self._environment = ChatEnvironment()
        try:
            tree = self._environment.plain_tree(source)
            self.detected_format = detect_content_format(tree)
            self._handles_strings = handles_strings(tree)
            self._template = self._environment.from_string(source)
        except Exception as exc:  # jinja2 raises its own, and Python's when the code made from the source is too deep
            raise ConfigError(f"the chat template is not valid: {exc}", "chat-template") from exc
        self._special_tokens = dict(special_tokens)
        self._knows_developer = "developer" in source

    def render(self, messages: Sequence[Mapping[str, Any]], options: ChatOptions) -> str:
        """The prompt. Raises RequestError with a sentence when the conversation or the template forbids it."""
        _check_options(options)
        form = options.content_format
        if form is ContentFormat.AUTO:
            form = self.detected_format
        wrap = form is ContentFormat.OPENAI and not (
            options.content_format is ContentFormat.AUTO and self._handles_strings
        )
        conversation = normalize_messages(messages, form, wrap_strings=wrap)
        if not self._knows_developer:  # it would drop these messages, or print a role the model never saw
            conversation = [{**m, "role": "system"} if m["role"] == "developer" else m for m in conversation]
        if not options.continue_final_message:
            return self._run(conversation, options)
        mark = f"{secrets.token_hex(12)} "  # the space shows whether the template trims the end of content
        body = _open_last(conversation, mark)
        return _cut(self._run(conversation, options), mark, body)

    def _run(self, conversation: list[dict[str, Any]], options: ChatOptions) -> str:
        variables = {
            **self._special_tokens,
            **options.kwargs,
            "messages": conversation,
            "tools": options.tools,
            "documents": options.documents,
            "add_generation_prompt": options.add_generation_prompt,
        }
        budget = self._environment.rendering()
        pieces: list[str] = []
        size = 0
        try:
            for piece in self._template.generate(variables):
                budget.spend()
                size += len(piece)
                if size > Limits.CHARACTERS:
                    raise RequestError(f"the chat template wrote more than {Limits.CHARACTERS} characters", "messages")
                pieces.append(piece)
        except RequestError:
            raise
        except TemplateError as exc:
            raise RequestError(f"chat template: {exc}", "messages") from exc
        except Exception as exc:  # a template is a program: anything it raises means this conversation does not fit it
            raise RequestError(f"the chat template cannot render these messages: {exc}", "messages") from exc
        return "".join(pieces)


def read_template(value: str) -> str:
    """The source of a template given by an option: the text itself, or the file it names.

    Raises ConfigError when it is neither: a path that does not exist, or text without any template syntax.
    """
    if "{{" in value or "{%" in value or "\n" in value:
        return value
    path = Path(value).expanduser()
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{value!r} is neither a file nor a Jinja template: {exc}", "chat-template") from None


def _check_options(options: ChatOptions) -> None:
    if options.add_generation_prompt and options.continue_final_message:
        raise RequestError(
            "add_generation_prompt and continue_final_message cannot both be true", "continue_final_message"
        )
    clash = sorted(_RESERVED & options.kwargs.keys())
    if clash:
        raise RequestError(
            f"chat_template_kwargs must not set {clash[0]}; use the request field of that name", "chat_template_kwargs"
        )


def _open_last(conversation: list[dict[str, Any]], mark: str) -> str:
    """Put `mark` after the last message's text; returns that text."""
    content = conversation[-1]["content"]
    if isinstance(content, str):
        conversation[-1]["content"] = content + mark
        return content
    if not content:
        raise RequestError("continue_final_message needs text in the last message", "messages")
    body: str = content[-1]["text"]
    content[-1]["text"] = body + mark
    return body


def _cut(rendered: str, mark: str, body: str) -> str:
    at = rendered.rfind(mark.strip())
    if at < 0 or body.strip() not in rendered:
        raise RequestError(
            "continue_final_message: the chat template changes or drops the last message, so it cannot be continued",
            "continue_final_message",
        )
    kept = rendered[:at]
    return kept if rendered.startswith(mark, at) else kept.rstrip()
