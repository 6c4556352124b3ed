"""Bodies that clients send.

Owns: the request structs. Knows nothing of defaults that depend on the model: absent is None, and
`turret.server.sampling_fields` decides what that means.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from turret.sampling import RepetitionDetection

__all__ = [
    "AbortRequest",
    "CallFields",
    "ChatRequest",
    "CompletionRequest",
    "DetokenizeRequest",
    "GenerateRequest",
    "SamplingFields",
    "StreamOptions",
    "TokenSampling",
    "TokenizeRequest",
]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`stream_options`; `continuous_usage_stats` puts running usage on every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class CallFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of every call that generates: whom it asks, who asks, and how it wants to be answered."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int | None = None
    cache_salt: str | None = None
    request_id: str | None = None
    kv_transfer_params: dict[str, Any] | None = None


class SamplingFields(CallFields, frozen=True, kw_only=True):
    """Fields that completions and chat share."""

    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: Literal["left", "right"] | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    logprob_token_ids: list[int] | None = None
    repetition_detection: RepetitionDetection | None = None
    stream_interval: int | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    add_special_tokens: bool | None = None
    echo: bool | None = None
    user: str | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    # What follows is understood and refused with a sentence (turret.server.sampling_fields), never ignored.
    thinking_token_budget: int | None = None
    vllm_xargs: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    watermarking: Any = None
    routed_experts_prompt_start: int | None = None


class CompletionRequest(SamplingFields, frozen=True, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]] | None = None
    prompt_embeds: str | list[str] | None = None
    logprobs: int | None = None
    suffix: str | None = None


class ChatRequest(SamplingFields, frozen=True, kw_only=True):
    """POST /v1/chat/completions. Messages stay plain objects: chat templates want them so."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None
    max_thinking_tokens: int | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, Any] | None = None
    return_prompt_text: bool | None = None


class TokenSampling(SamplingFields, frozen=True, kw_only=True):
    """`sampling_params` of POST /inference/v1/generate: the fields of `turret.SamplingParams` by their names; an absent
    `max_tokens` means 16, null up to the context length."""

    max_tokens: int | None = 16
    logprobs: int | None = None
    extra_args: dict[str, Any] | None = None


class GenerateRequest(CallFields, frozen=True, kw_only=True):
    """POST /inference/v1/generate: token ids in, token ids out."""

    token_ids: list[int]
    sampling_params: TokenSampling = TokenSampling()
    features: dict[str, Any] | None = None
    output_mode: Literal["tokens", "text"] | None = None


class AbortRequest(msgspec.Struct, frozen=True, kw_only=True):
    """POST /abort_requests: ids as answers carry them, or as the client chose them."""

    request_ids: list[str]


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """POST /tokenize: either `prompt` or `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """POST /detokenize."""

    tokens: list[int]
    model: str | None = None
