"""From the sampling fields of a body to `SamplingParams`.

Owns: the precedence request > generation config > built-in default, and refusals of fields that this server knows but
does not offer, or not together. Knows nothing of prompts or lengths (`turret.server.lengths`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turret.errors import RequestError
from turret.sampling import SamplingParams
from turret.server.structure import wanted_form
from turret.server.wire import CallFields, SamplingFields

__all__ = ["check_call", "check_no_budget", "check_supported", "sampling_params"]

DEFAULTED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Fields that a model's generation config may set."""

COPIED = (
    "n",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "min_tokens",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "prompt_logprobs",
    "logprob_token_ids",
    "repetition_detection",
    "skip_special_tokens",
    "spaces_between_special_tokens",
)
"""Fields taken from the body when present."""

REFUSED = {
    "vllm_xargs": "no plugin of this server reads extension arguments; leave the field out",
    "ec_transfer_params": "this server has no encoder to transfer from",
    "watermarking": "this server does not mark the text it generates",
    "routed_experts_prompt_start": "which experts were chosen is not told in this version",
}
"""Fields that are known and refused: nothing a client asks for is quietly left out."""

MAX_SALT = 128
SALT_CHARACTERS = "@/\\\0"
"""Characters that a cache salt may not hold."""


def sampling_params(
    fields: SamplingFields, defaults: Mapping[str, Any], *, logprobs: int | None, max_tokens: int | None
) -> SamplingParams:
    """The parameters a body asks for; raises `RequestError` naming the field when one is out of range.

    `defaults` come from the generation config; `logprobs` and `max_tokens` are what the route made of its own fields.
    """
    chosen: dict[str, Any] = {name: defaults[name] for name in DEFAULTED if defaults.get(name) is not None}
    for name in (*DEFAULTED, *COPIED):
        value = getattr(fields, name)
        if value is not None:
            chosen[name] = value
    if fields.use_beam_search:
        chosen["temperature"] = 1.0  # beams are ranked by what the model says, whatever the temperature
    chosen["structured_outputs"] = wanted_form(fields)
    return SamplingParams(logprobs=logprobs, max_tokens=max_tokens, **chosen)


def check_call(fields: CallFields) -> None:
    """Refuse what no call can have here."""
    if fields.kv_transfer_params:
        raise RequestError("kv_transfer_params: this server has no KV connector", "kv_transfer_params")
    if fields.stream_options is not None and not fields.stream:
        raise RequestError("stream_options can only be set when stream is true", "stream_options")
    salt = fields.cache_salt
    if salt is None:
        return
    if not salt:
        raise RequestError("cache_salt must not be an empty string", "cache_salt")
    if len(salt) > MAX_SALT or not set(salt).isdisjoint(SALT_CHARACTERS):
        raise RequestError(
            f"cache_salt may have {MAX_SALT} characters, none of them @, /, \\ or NUL; got {len(salt)}", "cache_salt"
        )


def check_no_budget(fields: SamplingFields) -> None:
    """Refuse a budget for reasoning where no conversation says where reasoning stands."""
    if fields.thinking_token_budget is not None:
        raise RequestError(
            "thinking_token_budget needs a conversation: send it to /v1/chat/completions", "thinking_token_budget"
        )


def check_supported(fields: SamplingFields) -> None:
    """Refuse what this server cannot do, and combinations that contradict themselves."""
    check_call(fields)
    for name, sentence in REFUSED.items():
        if getattr(fields, name):
            raise RequestError(f"{name}: {sentence}", name)
    if fields.stream and fields.prompt_logprobs is not None and fields.prompt_logprobs != 0:
        raise RequestError("prompt_logprobs cannot be streamed; set stream to false", "prompt_logprobs")
    if fields.stream_interval is not None and fields.stream_interval < 1:
        raise RequestError(f"stream_interval must be at least 1, got {fields.stream_interval}", "stream_interval")
    if fields.truncate_prompt_tokens is not None and fields.truncate_prompt_tokens < -1:
        raise RequestError(
            f"truncate_prompt_tokens must be -1 (the model's limit) or more, got {fields.truncate_prompt_tokens}",
            "truncate_prompt_tokens",
        )
