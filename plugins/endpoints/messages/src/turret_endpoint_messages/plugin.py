"""Endpoint `messages`: Anthropic's Messages API on turret's chat handler.

Owns: the two paths and the shape of errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from turret.contracts import (
    ChatAnswer,
    EndpointAnswer,
    EndpointCall,
    EndpointFault,
    EndpointHost,
    EndpointRoute,
    EndpointStream,
)
from turret.errors import RequestError
from turret_endpoint_messages.answer import message_of, stream_of
from turret_endpoint_messages.shapes import CountRequest, MessagesRequest
from turret_endpoint_messages.translate import chat_body, prompt_body

__all__ = ["MessagesEndpoint"]

T = TypeVar("T")
TYPES = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error"}


class MessagesEndpoint:
    """Contract `endpoint`, 1.0."""

    api = "1.0"
    id_prefix = "msg_"

    def routes(self, host: EndpointHost) -> Sequence[EndpointRoute]:
        """Both paths."""

        async def messages(call: EndpointCall) -> EndpointAnswer | EndpointStream:
            body = _read(call.body, MessagesRequest)
            answer = await _begun(host, call, chat_body(body))
            if body.stream:
                return EndpointStream(stream_of(answer), _error_event)
            return EndpointAnswer(await message_of(answer))

        async def count(call: EndpointCall) -> EndpointAnswer:
            tokens = await host.count(call, prompt_body(_read(call.body, CountRequest)))
            return EndpointAnswer(msgspec.json.encode({"input_tokens": tokens}))

        return [
            EndpointRoute("POST", "/v1/messages", messages, _error, "Answer a conversation in Anthropic's shape."),
            EndpointRoute("POST", "/v1/messages/count_tokens", count, _error, "Count the tokens of a prompt."),
        ]


async def _begun(host: EndpointHost, call: EndpointCall, chat: dict[str, Any]) -> ChatAnswer:
    """The answer. A budget for thinking is kept where the server can tell thinking from the answer; where it cannot
    there is nothing to bound, and clients that always send one are answered all the same."""
    try:
        return await host.chat(call, chat)
    except RequestError as error:
        if error.param != "max_thinking_tokens" or chat.pop("max_thinking_tokens", None) is None:
            raise
        return await host.chat(call, chat)


def _read(body: Any, shape: type[T]) -> T:
    try:
        return msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        raise RequestError(str(error)) from error


def _kind(status: int) -> str:
    if status in TYPES:
        return TYPES[status]
    if status == 503:
        return "overloaded_error"
    return "invalid_request_error" if status < 500 else "api_error"


def _error(fault: EndpointFault) -> bytes:
    return msgspec.json.encode({"type": "error", "error": {"type": _kind(fault.status), "message": fault.message}})


def _error_event(fault: EndpointFault) -> bytes:
    return b"event: error\ndata: " + _error(fault) + b"\n\n"
