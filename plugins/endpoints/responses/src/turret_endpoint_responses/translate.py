"""From a body of the Responses API to one of chat completions.

Owns: what becomes of items and fields. Knows nothing of answers or of what is stored. What has no counterpart is
refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turret.errors import RequestError
from turret_endpoint_responses.shapes import ResponsesRequest
from turret_endpoint_responses.tools import Toolbox, flat_name

__all__ = ["chat_body", "check", "input_messages"]

PASSED = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "stop", "ignore_eos", "skip_special_tokens",
    "include_stop_str_in_output", "logit_bias", "cache_salt", "priority", "user", "stream",
)  # fmt: skip
TEXT_PARTS = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")


def check(body: ResponsesRequest) -> None:
    """Refuse what cannot be done, by name."""
    refused = {
        "conversation": (body.conversation, "no conversations are kept here; send previous_response_id or the items"),
        "prompt": (body.prompt, "stored prompts are not kept here; send instructions and input"),
        "top_logprobs": (body.top_logprobs, "log-probabilities are told by chat completions only"),
        "include": (body.include, "nothing beside the answer is kept to be included"),
        "max_tool_calls": (body.max_tool_calls, "it bounds tools that OpenAI runs, and none are run here"),
    }
    for name, (value, why) in refused.items():
        if value and not (name == "include" and set(body.include or ()) <= {"reasoning.encrypted_content"}):
            raise RequestError(f"{name}: {why}", name)
    if body.max_output_tokens is not None and body.max_output_tokens < 1:
        raise RequestError(f"max_output_tokens must be at least 1, got {body.max_output_tokens}", "max_output_tokens")
    if body.background and not body.store:
        raise RequestError("background needs store: an answer that nobody waits for has to be kept", "background")


def chat_body(body: ResponsesRequest, history: Sequence[Mapping[str, Any]], box: Toolbox) -> dict[str, Any]:
    """The chat completion that answers `body` after the messages of `history` with the tools of `box`."""
    messages = [*history, *input_messages(body.input)]
    if body.instructions:
        messages = [{"role": "system", "content": body.instructions}, *messages]
    messages = _one_system_message(messages)
    made: dict[str, Any] = {name: getattr(body, name) for name in PASSED if getattr(body, name) is not None}
    made["messages"] = messages
    if body.model is not None:
        made["model"] = body.model
    if body.max_output_tokens is not None:
        made["max_completion_tokens"] = body.max_output_tokens
    if body.truncation == "auto":
        made["truncate_prompt_tokens"] = -1
    if body.tool_choice is not None and (box.functions or body.tool_choice != "auto"):
        made["tool_choice"] = box.choice(body.tool_choice)
    if box.functions:
        made["tools"] = box.functions
        made["parallel_tool_calls"] = body.parallel_tool_calls
    if body.reasoning and body.reasoning.get("effort") is not None:
        made["reasoning_effort"] = body.reasoning["effort"]
    if body.chat_template_kwargs:
        made["chat_template_kwargs"] = body.chat_template_kwargs
    if (wanted := (body.text or {}).get("format")) is not None:
        made["response_format"] = _format(wanted)
    last = messages[-1] if messages else {}
    if last.get("role") == "assistant" and not last.get("tool_calls"):
        made |= {"continue_final_message": True, "add_generation_prompt": False}
    return made


def _one_system_message(messages: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Instructions and what developers say first, as one message: many templates know no other."""
    first = next((i for i, one in enumerate(messages) if one["role"] not in ("system", "developer")), len(messages))
    if first < 2:
        return messages
    text = "\n\n".join(one["content"] for one in messages[:first])
    return [{"role": "system", "content": text}, *messages[first:]]


def input_messages(given: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Input items as chat messages; reasoning and calls join the assistant's message that they belong to."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[dict[str, Any]] = []
    for i, item in enumerate(given):
        _add(messages, item, f"input.{i}")
    return messages


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any], where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        _add_message(messages, item, where)
    elif kind == "function_call":
        name = flat_name(_text(item, "name", where), item.get("namespace"))
        _add_call(messages, item, (name, _text(item, "arguments", where)), where)
    elif kind == "custom_tool_call":
        arguments = json.dumps({"input": _text(item, "input", where)}, ensure_ascii=False)
        _add_call(messages, item, (_text(item, "name", where), arguments), where)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        content = output if isinstance(output, str) else _parts(output, f"{where}.output")
        messages.append({"role": "tool", "tool_call_id": _text(item, "call_id", where), "content": content})
    elif kind == "reasoning":
        parts = [*(item.get("content") or ()), *(item.get("summary") or ())]
        thought = _parts(parts, where) if parts else ""
        if thought:
            messages.append({"role": "assistant", "content": None, "reasoning": thought})
    else:
        raise RequestError(f"{where}: items of type {kind!r} are not known here", where)


def _add_call(
    messages: list[dict[str, Any]], item: Mapping[str, Any], call: tuple[str, str], where: str
) -> None:
    """A call, as name and arguments, joins the assistant's message."""
    function = {"name": call[0], "arguments": call[1]}
    made = {"id": _text(item, "call_id", where), "type": "function", "function": function}
    _assistant(messages).setdefault("tool_calls", []).append(made)


def _add_message(messages: list[dict[str, Any]], item: Mapping[str, Any], where: str) -> None:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        raise RequestError(f"{where}.role must be user, assistant, system or developer, got {role!r}", f"{where}.role")
    text = content if isinstance(content, str) else _parts(content, f"{where}.content")
    if role == "assistant" and messages and messages[-1]["role"] == "assistant" and not messages[-1]["content"]:
        messages[-1]["content"] = text
    else:
        messages.append({"role": role, "content": text})


def _assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message that calls belong to."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _parts(content: object, where: str) -> str:
    """Text parts, joined."""
    if not isinstance(content, list):
        raise RequestError(f"{where} must be text or a list of parts", where)
    texts = []
    for i, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") not in TEXT_PARTS:
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise RequestError(f"{where}.{i}: this model takes text only, no {kind}", f"{where}.{i}")
        texts.append(_text(part, "refusal" if part["type"] == "refusal" else "text", f"{where}.{i}"))
    return "".join(texts)


def _text(item: Mapping[str, Any], name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise RequestError(f"{where}.{name} must be text", f"{where}.{name}")
    return value


def _format(wanted: Any) -> dict[str, Any]:
    """`text.format` as `response_format`."""
    if not isinstance(wanted, dict) or wanted.get("type") not in ("text", "json_object", "json_schema"):
        raise RequestError("text.format.type must be text, json_object or json_schema", "text.format")
    if wanted["type"] != "json_schema":
        return {"type": wanted["type"]}
    schema = {
        name: wanted[name] for name in ("name", "schema", "strict", "description") if wanted.get(name) is not None
    }
    return {"type": "json_schema", "json_schema": schema}
