"""Bodies that the server sends, whole answers only: stream chunks are built as bytes (`turret.server.streaming`).

Owns: the answer structs. Knows nothing of how they are filled. Fields of type `X | UnsetType` are left out when unset.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "ChatChoice",
    "ChatCompletion",
    "ChatLogprobs",
    "ChatMessage",
    "Completion",
    "CompletionChoice",
    "CompletionLogprobs",
    "CompletionTokensDetails",
    "ErrorBody",
    "ErrorInfo",
    "ModelCard",
    "ModelList",
    "ModelPermission",
    "PromptTokensDetails",
    "TokenAnswer",
    "TokenChance",
    "TokenChoice",
    "TokenLogprob",
    "Usage",
]


class ErrorInfo(msgspec.Struct, frozen=True):
    """What went wrong, in the shape OpenAI clients parse; `code` repeats the HTTP status."""

    message: str
    type: str
    param: str | None
    code: int


class ErrorBody(msgspec.Struct, frozen=True):
    """The envelope of `ErrorInfo`."""

    error: ErrorInfo


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """How much of the prompt came from the prefix cache."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """How much of the output was reasoning."""

    reasoning_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Token counts, summed over all choices; a prompt counts once."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptTokensDetails | UnsetType | None = UNSET
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Parallel lists, one entry per token; the first prompt token of an echo has nulls."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One text; `stop_reason` is the stop string or token id that ended it, null for end-of-sequence."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    prompt_logprobs: list[dict[str, Any] | None] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of POST /v1/completions."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    system_fingerprint: str | None = None
    service_tier: str | None = None


class TokenChance(msgspec.Struct, frozen=True):
    """One alternative: its text, log-probability and UTF-8 bytes."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(msgspec.Struct, frozen=True):
    """The token that was taken, and the alternatives at its place."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TokenChance]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """One entry per token of the message."""

    content: list[TokenLogprob]
    refusal: None = None


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The generated message."""

    role: str
    content: str | None
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: list[dict[str, Any]] | UnsetType = UNSET
    reasoning: str | None = None


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One message and why it ended."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of POST /v1/chat/completions."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str | None = None
    service_tier: str | None = None
    prompt_logprobs: list[dict[str, Any] | None] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET


class TokenChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence of token ids; `stop_reason` as in `CompletionChoice`."""

    index: int
    token_ids: list[int]
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class TokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of POST /inference/v1/generate."""

    request_id: str
    choices: list[TokenChoice]
    prompt_logprobs: list[dict[str, Any] | None] | None = None
    kv_transfer_params: None = None
    usage: Usage


class ModelPermission(msgspec.Struct, frozen=True, kw_only=True):
    """What OpenAI's first clients read; everybody may do everything there is."""

    id: str = "modelperm-turret"
    object: str = "model_permission"
    created: int = 0
    allow_create_engine: bool = False
    allow_sampling: bool = True
    allow_logprobs: bool = True
    allow_search_indices: bool = False
    allow_view: bool = True
    allow_fine_tuning: bool = False
    organization: str = "*"
    group: str | None = None
    is_blocking: bool = False


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One served name."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "turret"
    root: str
    parent: str | None = None
    max_model_len: int | None
    permission: list[ModelPermission] = msgspec.field(default_factory=lambda: [ModelPermission()])


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of GET /v1/models."""

    object: str = "list"
    data: list[ModelCard]
