"""Conversations: checking messages and tools, and rendering them with the chat template.

Owns: what a chat body may hold and what the template gets. Knows nothing of templates themselves (`turret.text`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from turret.errors import RequestError
from turret.server.prompts import INLINE_CHARS, encode_text
from turret.server.state import ServerState
from turret.server.wire import ChatRequest, TokenizeRequest

__all__ = ["answer_role", "check_tools", "echoed_text", "render"]

TEXT_PARTS = {"text": "text", "input_text": "text", "refusal": "refusal"}
"""Content parts that are text, and the member that holds it."""


async def render(state: ServerState, body: ChatRequest | TokenizeRequest) -> list[int]:
    """Token ids of a conversation."""
    messages = body.messages or []
    check_messages(messages)
    if body.chat_template is not None and not state.config.server.trust_request_chat_template:
        raise RequestError(
            "chat_template is refused: this server was started without --trust-request-chat-template", "chat_template"
        )
    options = template_options(body)
    text = state.text
    if sum(len(str(m.get("content"))) for m in messages) > INLINE_CHARS:
        prompt = await asyncio.to_thread(text.render_chat, messages, **options)
    else:
        prompt = text.render_chat(messages, **options)
    return await encode_text(state, prompt, bool(body.add_special_tokens))


def template_options(body: ChatRequest | TokenizeRequest) -> dict[str, Any]:
    """What the template gets beside the messages."""
    if body.continue_final_message and body.add_generation_prompt:
        raise RequestError(
            "continue_final_message and add_generation_prompt cannot both be true: the last message is either "
            "continued or answered",
            "continue_final_message",
        )
    options: dict[str, Any] = {
        "add_generation_prompt": body.add_generation_prompt is not False and not body.continue_final_message,
        "continue_final_message": bool(body.continue_final_message),
        "tools": body.tools,
        "chat_template": body.chat_template,
        "chat_template_kwargs": dict(body.chat_template_kwargs or {}),
    }
    if isinstance(body, ChatRequest):
        options["documents"] = body.documents
        if body.reasoning_effort is not None:
            options["chat_template_kwargs"].setdefault("reasoning_effort", body.reasoning_effort)
    return options


def check_messages(messages: list[dict[str, Any]]) -> None:
    """Raise `RequestError` with the path of the first message that cannot be used."""
    if not messages:
        raise RequestError("messages must hold at least one message", "messages")
    for i, message in enumerate(messages):
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise RequestError(f"messages.{i}.role must be a string such as 'user'", f"messages.{i}.role")
        _check_content(message.get("content"), f"messages.{i}.content")
        calls = message.get("tool_calls")
        if calls is not None and not (isinstance(calls, list) and all(isinstance(c, dict) for c in calls)):
            raise RequestError(f"messages.{i}.tool_calls must be a list of objects", f"messages.{i}.tool_calls")


def _check_content(content: Any, path: str) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise RequestError(f"{path} must be a string or a list of parts", path)
    for k, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in TEXT_PARTS:
            shown = repr(kind) if kind is not None else "a part without a type"
            raise RequestError(f"{path}.{k}: this model takes text only, not {shown}", f"{path}.{k}")
        if not isinstance(part.get(TEXT_PARTS[kind]), str):
            raise RequestError(f"{path}.{k}.{TEXT_PARTS[kind]} must be a string", f"{path}.{k}")


def check_tools(body: ChatRequest) -> None:
    """Refuse tool choices that need a parser or a grammar; tools themselves reach the template."""
    tools, choice = body.tools, body.tool_choice
    for i, tool in enumerate(tools or ()):
        function = tool.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError(f"tools.{i} must be a function tool with a name", f"tools.{i}")
    if choice is None:
        choice = "auto" if tools else "none"
    if choice == "none":
        return
    if not tools:
        raise RequestError(f"tool_choice is {choice!r}, but tools is missing", "tool_choice")
    if isinstance(choice, dict):
        name = (choice.get("function") or {}).get("name")
        if name not in [tool["function"]["name"] for tool in tools]:
            raise RequestError(f"tool_choice names the function {name!r}, which tools does not declare", "tool_choice")
    elif choice not in ("auto", "required"):
        raise RequestError(f"tool_choice must be none, auto, required or a function, got {choice!r}", "tool_choice")
    raise RequestError(
        "tool calls cannot be parsed: no tool parser is available in this version; send tool_choice 'none' to show the "
        "tools to the model and read its text",
        "tool_choice",
    )


def answer_role(state: ServerState, body: ChatRequest) -> str:
    """Role of the generated message: the server's, or that of the message being continued."""
    if body.continue_final_message or body.add_generation_prompt is False:
        return str(body.messages[-1]["role"])
    return state.config.server.response_role


def echoed_text(body: ChatRequest, role: str) -> str:
    """With `echo`, the text of the last message when its role is the answer's."""
    if not body.echo or body.messages[-1].get("role") != role:
        return ""
    content = body.messages[-1].get("content")
    if isinstance(content, list):
        return "".join(part.get(TEXT_PARTS[part["type"]], "") for part in content)
    return content or ""
