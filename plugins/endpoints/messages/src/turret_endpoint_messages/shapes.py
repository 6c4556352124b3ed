"""Bodies of the Messages API.

Owns: which fields there are and what they may hold. Source: Anthropic's API reference.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["CountRequest", "Message", "MessagesRequest", "OutputConfig", "Tool", "ToolChoice"]

Blocks = str | list[dict[str, Any]]


class Message(msgspec.Struct, frozen=True):
    """One turn."""

    role: Literal["user", "assistant", "system"]
    content: Blocks


class Tool(msgspec.Struct, frozen=True):
    """A tool of the client's own; `type` other than custom is a tool that Anthropic runs."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether and what to call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(msgspec.Struct, frozen=True):
    """How much effort, and what shape the text of the answer has."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class CountRequest(msgspec.Struct, frozen=True, kw_only=True):
    """POST /v1/messages/count_tokens."""

    model: str
    messages: list[Message]
    system: Blocks | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: dict[str, Any] | None = None
    output_config: OutputConfig | None = None
    mcp_servers: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesRequest(CountRequest, frozen=True, kw_only=True):
    """POST /v1/messages. `metadata` and `service_tier` are for Anthropic's own accounting and say nothing here."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
