"""From a body of the Messages API to one of chat completions.

Owns: what becomes of blocks, tools and choices. Knows nothing of answers. What has no counterpart is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turret.errors import RequestError
from turret_endpoint_messages.shapes import CountRequest, Message, MessagesRequest, Tool, ToolChoice

__all__ = ["chat_body", "prompt_body"]

BILLING = "x-anthropic-billing-header:"
"""How a block begins that a client of Anthropic's puts first in the system prompt. It changes with every call and would
keep the prefix cache from ever being hit."""


def chat_body(body: MessagesRequest) -> dict[str, Any]:
    """The chat completion that answers `body`."""
    if body.max_tokens < 1:
        raise RequestError(f"max_tokens must be at least 1, got {body.max_tokens}", "max_tokens")
    sampling = {
        "max_completion_tokens": body.max_tokens,
        "stop": body.stop_sequences or None,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "stream": body.stream,
    }
    made = {**prompt_body(body), **{name: value for name, value in sampling.items() if value is not None}}
    if body.output_config is not None and body.output_config.format is not None:
        made["response_format"] = _format(body.output_config.format)
    if body.thinking is not None and (budget := _budget(body.thinking)) is not None:
        made["max_thinking_tokens"] = budget
    return made


def prompt_body(body: CountRequest) -> dict[str, Any]:
    """What of it makes the prompt."""
    if not body.model:
        raise RequestError("model must not be empty", "model")
    if body.mcp_servers:
        raise RequestError("mcp_servers: no tools are run here; give tools of your own", "mcp_servers")
    made: dict[str, Any] = {"model": body.model, "messages": _messages(body)}
    if body.tools:
        made["tools"] = [_tool(i, tool) for i, tool in enumerate(body.tools)]
    if body.tool_choice is not None:
        made.update(_choice(body.tool_choice))
    kwargs = dict(body.chat_template_kwargs or {})
    if body.thinking is not None:
        kwargs.update(_thinking(body.thinking))
    if body.output_config is not None and body.output_config.effort is not None:
        kwargs.setdefault("reasoning_effort", body.output_config.effort)
    if kwargs:
        made["chat_template_kwargs"] = kwargs
    if body.messages and body.messages[-1].role == "assistant":
        made |= {"continue_final_message": True, "add_generation_prompt": False}
    return made


def _thinking(thinking: Mapping[str, Any]) -> dict[str, Any]:
    kind = thinking.get("type")
    if kind not in ("enabled", "disabled", "adaptive"):
        raise RequestError(f"thinking.type must be enabled, adaptive or disabled, got {kind!r}", "thinking.type")
    return {"enable_thinking": kind != "disabled", "thinking": kind != "disabled"}


def _budget(thinking: Mapping[str, Any]) -> int | None:
    budget = thinking.get("budget_tokens") if thinking.get("type") == "enabled" else None
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 1):
        raise RequestError(f"thinking.budget_tokens must be a positive integer, got {budget!r}", "thinking")
    return budget


def _format(format: Mapping[str, Any]) -> dict[str, Any]:
    schema = format.get("schema")
    if format.get("type") != "json_schema" or not isinstance(schema, dict):
        raise RequestError("output_config.format must be {type: json_schema, schema}", "output_config.format")
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": schema, "strict": True}}


def _messages(body: CountRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if body.system:
        messages.append({"role": "system", "content": _text_of(body.system, "system")})
    for i, message in enumerate(body.messages):
        messages += _turn(message, f"messages.{i}")
    return messages


def _text_of(content: str | Sequence[Mapping[str, Any]], where: str) -> str:
    """Text blocks, joined; no others."""
    if isinstance(content, str):
        return content
    parts = []
    for i, block in enumerate(content):
        text = block.get("text")
        if block.get("type") != "text" or not isinstance(text, str):
            raise RequestError(f"{where}.{i} must be a text block with text", f"{where}.{i}")
        if not (i == 0 and text.startswith(BILLING)):
            parts.append(text)
    return "".join(parts)


def _turn(message: Message, where: str) -> list[dict[str, Any]]:
    """One turn as chat messages: results of tools become messages of their own, before the text beside them."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    if message.role == "assistant":
        return [_assistant(message.content, f"{where}.content")]
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for i, block in enumerate(message.content):
        place = f"{where}.content.{i}"
        if block.get("type") == "tool_result":
            results.append(_result(block, place))
        else:
            parts.append({"type": "text", "text": _block_text(block, place)})
    return [*results, *([{"role": message.role, "content": parts}] if parts else [])]


def _block_text(block: Mapping[str, Any], where: str) -> str:
    kind = block.get("type")
    if kind in ("image", "document"):
        raise RequestError(f"{where}: this model takes text only, no {kind} blocks", where)
    if kind != "text" or not isinstance(block.get("text"), str):
        raise RequestError(f"{where}: blocks of type {kind!r} cannot stand here", where)
    return str(block["text"])


def _result(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    call_id, content = block.get("tool_use_id"), block.get("content")
    if not isinstance(call_id, str):
        raise RequestError(f"{where}.tool_use_id must be the id of a tool_use block", f"{where}.tool_use_id")
    if isinstance(content, list):
        content = "".join(_block_text(part, f"{where}.content.{i}") for i, part in enumerate(content))
    if not isinstance(content, str | None):
        raise RequestError(f"{where}.content must be text or blocks", f"{where}.content")
    text = content or ""
    return {"role": "tool", "tool_call_id": call_id, "content": f"Error: {text}" if block.get("is_error") else text}


def _assistant(blocks: Sequence[Mapping[str, Any]], where: str) -> dict[str, Any]:
    text, thought, calls = [], [], []
    for i, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "thinking" and isinstance(block.get("thinking"), str):
            thought.append(block["thinking"])
        elif kind == "redacted_thinking":
            continue  # encrypted by whoever wrote it: there is nothing to show a model
        elif kind == "tool_use":
            calls.append(_use(block, f"{where}.{i}"))
        else:
            text.append(_block_text(block, f"{where}.{i}"))
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text) or (None if calls else "")}
    if calls:
        message["tool_calls"] = calls
    if thought:
        message["reasoning"] = "".join(thought)
    return message


def _use(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(block.get("name"), str) or not isinstance(block.get("id"), str):
        raise RequestError(f"{where} must have an id and a name", where)
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}


def _tool(place: int, tool: Tool) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        raise RequestError(
            f"tools.{place}: {tool.type} is a tool that Anthropic runs; give tools of your own, with an input_schema",
            f"tools.{place}.type",
        )
    parameters = {"type": "object", **(tool.input_schema or {})}
    function: dict[str, Any] = {"name": tool.name, "parameters": parameters}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice) -> dict[str, Any]:
    made: dict[str, Any] = {"tool_choice": {"auto": "auto", "any": "required", "none": "none"}.get(choice.type)}
    if choice.type == "tool":
        if not choice.name:
            raise RequestError("tool_choice of type tool needs a name", "tool_choice.name")
        made["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    if choice.disable_parallel_tool_use:
        made["parallel_tool_calls"] = False
    return made
