"""Brings chat messages into the shape templates expect.

Owns: what becomes of `content`, of tool calls and of reasoning, as clients send them. Knows nothing of jinja2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turret.errors import RequestError
from turret.text.content_format import ContentFormat

__all__ = ["normalize_messages"]

_TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "thinking")
_REASONING = ("reasoning_content", "reasoning", "thinking")


def normalize_messages(
    messages: Sequence[Mapping[str, Any]], form: ContentFormat, *, wrap_strings: bool = False
) -> list[dict[str, Any]]:
    """Fresh copies of the messages for a template that takes content as `form` (STRING or OPENAI).

    Content parts are joined by newlines for STRING; for OPENAI, strings are put into a part each if `wrap_strings`.
    Arguments of tool calls become objects where they are JSON text; reasoning is given under every name in use; fields
    that are null are left out (but content, which becomes ""). Raises RequestError naming the message at fault.
    """
    if not messages:
        raise RequestError("messages must not be empty", "messages")
    return [_message(message, i, form, wrap_strings) for i, message in enumerate(messages)]


def _message(message: Mapping[str, Any], at: int, form: ContentFormat, wrap_strings: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise RequestError(f"messages[{at}] must be an object with a role", f"messages[{at}].role")
    out = {key: value for key, value in message.items() if value is not None}
    out["content"] = _content(message.get("content"), at, form, wrap_strings)
    if "tool_calls" in out:
        if not isinstance(out["tool_calls"], list):
            raise RequestError(f"messages[{at}].tool_calls must be a list", f"messages[{at}].tool_calls")
        out["tool_calls"] = [_tool_call(call, at) for call in out["tool_calls"]]
        if not out["tool_calls"]:
            del out["tool_calls"]
    reasoning = next((out[k] for k in _REASONING if isinstance(out.get(k), str)), None)
    if reasoning is not None:
        out.update({k: reasoning for k in _REASONING if k not in out})
    return out


def _content(content: object, at: int, form: ContentFormat, wrap_strings: bool) -> str | list[dict[str, Any]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if wrap_strings else content
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise RequestError(f"messages[{at}].content must be a string or a list of parts", f"messages[{at}].content")
    texts = [_part_text(part, f"messages[{at}].content[{i}]") for i, part in enumerate(content)]
    if form is ContentFormat.STRING:
        return "\n".join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _part_text(part: object, where: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise RequestError(f"{where} must be a string or an object", where)
    kind = part.get("type", "text")
    if kind not in _TEXT_TYPES:
        raise RequestError(f"{where} is of type {kind!r}, but this model takes text only", where)
    text = part.get("text" if "text" in part else str(kind))
    if not isinstance(text, str):
        raise RequestError(f"{where}.text must be a string", f"{where}.text")
    return text


def _tool_call(call: object, at: int) -> dict[str, Any]:
    where = f"messages[{at}].tool_calls"
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        raise RequestError(f"{where} must be objects with a function", where)
    function = dict(call["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        function["arguments"] = _parsed(arguments)
    elif arguments is None:
        function["arguments"] = {}
    return {**call, "function": function}


def _parsed(arguments: str) -> Any:
    """Templates print arguments as JSON, so text that is JSON becomes a value; other text stays as it is."""
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):  # not JSON, or nested deeper than any template prints
        return arguments
