"""The four forms of a completion prompt.

Owns: telling them apart and encoding them. Knows nothing of limits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from turret.errors import RequestError
from turret.server.state import ServerState

__all__ = ["Prompt", "encode_text", "read_prompts"]

INLINE_CHARS = 4096
"""Texts longer than this are encoded in a thread, so that one long prompt does not hold up everybody's tokens."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and the text they came from when it was text."""

    token_ids: list[int]
    text: str | None = None


async def encode_text(state: ServerState, text: str, add_special_tokens: bool) -> list[int]:
    """Token ids of a text."""
    encode = state.text.encode
    if len(text) <= INLINE_CHARS:
        return encode(text, add_special_tokens=add_special_tokens)
    return await asyncio.to_thread(encode, text, add_special_tokens=add_special_tokens)


async def read_prompts(state: ServerState, prompt: Any, add_special_tokens: bool) -> list[Prompt]:
    """Prompts in order: a string, a list of strings, a list of token ids, or a list of lists of token ids."""
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
    return [await _read(state, item, add_special_tokens) for item in items]


async def _read(state: ServerState, item: str | list[int], add_special_tokens: bool) -> Prompt:
    if isinstance(item, str):
        return Prompt(await encode_text(state, item, add_special_tokens), item)
    state.check_token_ids(item, "prompt")
    return Prompt(item)
