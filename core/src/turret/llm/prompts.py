"""The forms a prompt may have.

Owns: telling them apart and pairing them with parameters. Knows nothing of engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turret.errors import RequestError
from turret.sampling import SamplingParams
from turret.text import TextProcessor

__all__ = ["EncodedPrompt", "PromptInput", "encode_prompts", "pair_with"]

PromptInput = str | Sequence[int] | Mapping[str, Any]
"""A text, token ids, `{"prompt": text}` or `{"prompt_token_ids": ids}`."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """Token ids, and the text they came from if it was text."""

    token_ids: list[int]
    text: str | None = None
    cache_salt: str | None = None


def encode_prompts(text: TextProcessor, prompts: PromptInput | Sequence[PromptInput]) -> list[EncodedPrompt]:
    """One or many prompts, in order; raises `RequestError` that names the position of a bad one."""
    if isinstance(prompts, (str, Mapping)) or (prompts and all(isinstance(item, int) for item in prompts)):
        return [_encode(text, prompts)]
    encoded = []
    for position, prompt in enumerate(prompts):
        try:
            encoded.append(_encode(text, prompt))
        except RequestError as error:
            raise RequestError(f"prompt {position}: {error}", error.param) from error
    return encoded


def _encode(text: TextProcessor, prompt: Any) -> EncodedPrompt:
    salt = None
    if isinstance(prompt, Mapping):
        salt = prompt.get("cache_salt")
        unknown = sorted(set(prompt) - {"prompt", "prompt_token_ids", "cache_salt"})
        if unknown:
            raise RequestError(f"a prompt takes prompt or prompt_token_ids in this version, not {unknown[0]}", "prompt")
        ids, words = prompt.get("prompt_token_ids"), prompt.get("prompt")
        if ids is not None:
            return EncodedPrompt(text.encode_prompt(ids), words, salt)
        prompt = words
    if isinstance(prompt, str):
        return EncodedPrompt(text.encode_prompt(prompt), prompt, salt)
    if isinstance(prompt, Sequence):
        return EncodedPrompt(text.encode_prompt(prompt), None, salt)
    raise RequestError(f"a prompt is a text, a list of token ids or a dict, not {type(prompt).__name__}", "prompt")


def pair_with(params: SamplingParams | Sequence[SamplingParams], count: int) -> list[SamplingParams]:
    """Parameters for each of `count` prompts: one for all, or as many as there are prompts."""
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise RequestError(f"there are {count} prompts but {len(params)} sampling params", "sampling_params")
    return list(params)
