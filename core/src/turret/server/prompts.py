"""The four forms of a completion prompt.

Owns: telling them apart and encoding them. Knows nothing of limits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from turret.errors import RequestError
from turret.server.wire import CompletionRequest
from turret.text import TextProcessor

__all__ = ["INLINE_CHARS", "Prompt", "read_prompts"]

INLINE_CHARS = 4096
"""Texts longer than this are encoded in a thread, so that one long prompt does not hold up everybody's tokens."""


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
    return [await _read(text, item, body) for item in items]


async def _read(text: TextProcessor, item: str | list[int], body: CompletionRequest) -> Prompt:
    args = (item, body.add_special_tokens is not False, body.truncate_prompt_tokens)
    if len(item) <= INLINE_CHARS:
        ids = text.encode_prompt(*args)
    else:
        ids = await asyncio.to_thread(text.encode_prompt, *args)
    whole = isinstance(item, str) and (body.truncate_prompt_tokens is None)
    return Prompt(ids, item if whole else None)  # type: ignore[arg-type]
