"""Conversations: checking tools and template options, and rendering with the chat template.

Owns: what a chat body may ask for. Knows nothing of templates or message shapes themselves (`turret.text`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from turret.errors import RequestError
from turret.server.prompts import INLINE_SIZE, truncation
from turret.server.state import ServerState
from turret.server.thinking import wanted_budget
from turret.server.wire import ChatRequest, TokenizeRequest
from turret.text import ChatOptions, ChatPrompt, ContentFormat

__all__ = ["answer_role", "check_tools", "echoed_text", "render"]


async def render(state: ServerState, body: ChatRequest | TokenizeRequest) -> ChatPrompt:
    """A conversation as text and token ids; raises `RequestError` naming what cannot be used."""
    messages = body.messages or []
    if not messages:
        raise RequestError("messages must hold at least one message", "messages")
    if body.chat_template is not None and not state.config.server.trust_request_chat_template:
        raise RequestError(
            "chat_template is refused: this server was started without --trust-request-chat-template", "chat_template"
        )
    for name in ("mm_processor_kwargs", "media_io_kwargs"):
        if getattr(body, name):
            raise RequestError(f"{name}: this model takes text only", name)
    options = _options(state, body)

    def encode() -> ChatPrompt:
        return state.text.encode_chat(
            messages,
            options,
            body.chat_template,
            add_special_tokens=bool(body.add_special_tokens),
            truncation=truncation(body) if isinstance(body, ChatRequest) else None,
        )

    # A template of the request's own has to be compiled, and may take its time.
    slow = body.chat_template is not None or sum(len(str(m.get("content"))) for m in messages) > INLINE_SIZE
    return await asyncio.to_thread(encode) if slow else encode()


def _options(state: ServerState, body: ChatRequest | TokenizeRequest) -> ChatOptions:
    """What the template gets beside the messages."""
    if body.continue_final_message and body.add_generation_prompt:
        raise RequestError(
            "continue_final_message and add_generation_prompt cannot both be true: the last message is either "
            "continued or answered",
            "continue_final_message",
        )
    kwargs: dict[str, Any] = dict(body.chat_template_kwargs or {})
    documents, tools = None, body.tools or None
    if isinstance(body, ChatRequest):
        if state.config.server.exclude_tools_when_tool_choice_none and body.tool_choice == "none":
            tools = None
        documents = body.documents
        if (budget := wanted_budget(body)) is not None:
            kwargs.setdefault("thinking_budget", budget[1])  # some templates tell the model
        if body.reasoning_effort is not None:
            kwargs.setdefault("reasoning_effort", body.reasoning_effort)
            kwargs.setdefault("enable_thinking", body.reasoning_effort != "none")
    return ChatOptions(
        add_generation_prompt=body.add_generation_prompt is not False and not body.continue_final_message,
        continue_final_message=bool(body.continue_final_message),
        tools=tools,
        documents=documents,
        kwargs=kwargs,
        content_format=ContentFormat(state.config.server.chat_template_content_format),
    )


def check_tools(state: ServerState, body: ChatRequest) -> bool:
    """Whether the answer may call tools; raises `RequestError` for choices that this server cannot honour."""
    tools, choice = body.tools, body.tool_choice
    names: set[str] = set()
    for i, tool in enumerate(tools or ()):
        function = tool.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError(f"tools.{i} must be a function tool with a name", f"tools.{i}")
        if function["name"] in names:
            raise RequestError(f"tools.{i}: there are two functions called {function['name']!r}", f"tools.{i}")
        names.add(function["name"])
    if choice is None:
        choice = "auto" if tools else "none"
    if choice == "none":
        return False
    if not tools:
        raise RequestError(f"tool_choice is {choice!r}, but tools is missing", "tool_choice")
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if name not in names:
            raise RequestError(f"tool_choice names the function {name!r}, which tools does not declare", "tool_choice")
    elif choice not in ("auto", "required"):
        raise RequestError(f"tool_choice must be none, auto, required or a function, got {choice!r}", "tool_choice")
    if choice != "auto":
        return True
    if state.parts.parsers.tools is None or not state.config.server.enable_auto_tool_choice:
        raise RequestError(
            "tool_choice 'auto' needs a server started with --enable-auto-tool-choice and --tool-call-parser; send "
            "tool_choice 'none' to show the tools to the model and read its text",
            "tool_choice",
        )
    return True


def answer_role(state: ServerState, body: ChatRequest) -> str:
    """Role of the generated message: the server's, or that of the message being continued."""
    if body.continue_final_message or body.add_generation_prompt is False:
        return str(body.messages[-1].get("role"))
    return state.config.server.response_role


def echoed_text(body: ChatRequest, role: str) -> str:
    """With `echo`, the text of the last message when its role is the answer's."""
    if not body.echo or body.messages[-1].get("role") != role:
        return ""
    content = body.messages[-1].get("content")
    if isinstance(content, list):
        return "".join(part if isinstance(part, str) else part.get("text", "") for part in content)
    return content or ""
