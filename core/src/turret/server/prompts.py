"""The four forms of a completion prompt.

Owns: telling them apart and encoding them. Knows nothing of limits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from turret.errors import RequestError
from turret.server.wire import CompletionRequest, SamplingFields
from turret.text import TextProcessor, Truncation

__all__ = ["INLINE_SIZE", "Prompt", "read_prompts", "truncation"]

INLINE_SIZE = 4096
"""Calls with more characters than this are encoded in a thread, so that they do not hold up everybody's tokens."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and the text they came from when it was text and nothing was cut off."""

    token_ids: list[int]
    text: str | None = None


async def read_prompts(text: TextProcessor, body: CompletionRequest) -> list[Prompt]:
    """Prompts in order: a string, a list of strings, a list of token ids, or a list of lists of token ids."""
    prompt = body.prompt
    if prompt is None or prompt == []:
        raise RequestError("prompt is missing or empty", "prompt")
    if isinstance(prompt, str):
        items: list[Any] = [prompt]
    elif all(isinstance(item, int) for item in prompt):
        items = [prompt]
    elif all(isinstance(item, str) for item in prompt) or all(isinstance(item, list) for item in prompt):
        items = prompt
    else:
        raise RequestError("prompt mixes strings, token ids and lists; use one form", "prompt")

    def encode() -> list[Prompt]:
        return [_read(text, item, body) for item in items]

    return encode() if sum(map(len, items)) <= INLINE_SIZE else await asyncio.to_thread(encode)


def _read(text: TextProcessor, item: str | list[int], body: CompletionRequest) -> Prompt:
    cut = truncation(body)
    ids = text.encode_prompt(item, body.add_special_tokens is not False, cut)
    return Prompt(ids, item if isinstance(item, str) and cut is None else None)


def truncation(body: SamplingFields) -> Truncation | None:
    """What a body says of prompts that are too long; None: nothing is cut."""
    if body.truncate_prompt_tokens is None:
        return None
    return Truncation(body.truncate_prompt_tokens, body.truncation_side or "left")
