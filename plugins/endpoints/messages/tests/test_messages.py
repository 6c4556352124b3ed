"""Bodies to chat completions, answers to messages; the official SDK reads what is streamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import anthropic
import httpx2
import pytest

from turret.contracts import (
    ChatFinish,
    ChatUsage,
    ContentDelta,
    EndpointAnswer,
    EndpointCall,
    EndpointFault,
    EndpointStream,
    ParserEvent,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from turret.errors import RequestError
from turret.testing.endpoints import ScriptedHost
from turret_endpoint_messages.plugin import MessagesEndpoint

Part = ParserEvent | ChatFinish
USER = {"role": "user", "content": "Hi"}
BODY: dict[str, Any] = {"model": "m", "max_tokens": 50, "messages": [USER]}
SCRIPT: tuple[Part, ...] = (
    ReasoningDelta("Let me "),
    ReasoningDelta("see."),
    ContentDelta("I look "),
    ContentDelta("it up."),
    ToolCallStart(0, "get_weather", "call_1"),
    ToolArgumentsDelta(0, '{"city": '),
    ToolArgumentsDelta(0, '"Łódź"}'),
    ToolCallEnd(0),
    ToolCallStart(1, "now", "call_2"),
    ToolArgumentsDelta(1, "{}"),
    ToolCallEnd(1),
    ChatFinish("tool_calls"),
)
USAGE = ChatUsage(prompt=10, cached=4, output=6, reasoning=2)


async def respond(host: ScriptedHost, path: str, body: Any) -> tuple[int, str, bytes]:
    """Status, media type and body of one call."""
    route = next(route for route in MessagesEndpoint().routes(host) if route.path == path)
    try:
        made = await route.handler(EndpointCall(body))
    except RequestError as error:
        return 400, "application/json", route.fault(EndpointFault(400, "BadRequestError", str(error), error.param))
    if isinstance(made, EndpointAnswer):
        return made.status, made.media_type, made.body
    assert isinstance(made, EndpointStream)
    return 200, "text/event-stream", b"".join([event async for event in made.events])


def client(parts: Sequence[Part] = SCRIPT) -> tuple[anthropic.Anthropic, ScriptedHost]:
    """Anthropic's own client on a transport that asks the endpoint."""
    host = ScriptedHost(parts, USAGE)

    def send(request: httpx2.Request) -> httpx2.Response:
        status, media, body = asyncio.run(respond(host, request.url.path, json.loads(request.content)))
        return httpx2.Response(status, headers={"content-type": media}, content=body)

    http = httpx2.Client(transport=httpx2.MockTransport(send))
    return anthropic.Anthropic(api_key="k", base_url="http://turret", http_client=http, max_retries=0), host


def translated(**body: Any) -> dict[str, Any]:
    host = ScriptedHost()
    status, _, said = asyncio.run(respond(host, "/v1/messages", {**BODY, **body}))
    assert status == 200, said
    return host.bodies[0]


def test_a_whole_message() -> None:
    sdk, _ = client()
    message = sdk.messages.create(**BODY)
    kinds = [block.type for block in message.content]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    thinking, text, first, second = message.content
    assert thinking.type == "thinking" and thinking.thinking == "Let me see." and thinking.signature
    assert text.type == "text" and text.text == "I look it up."
    assert first.type == "tool_use" and first.input == {"city": "Łódź"}
    assert (first.id, first.name) == ("call_1", "get_weather")
    assert second.type == "tool_use" and second.input == {}
    assert message.stop_reason == "tool_use" and message.stop_sequence is None
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens) == (6, 4, 6)


def test_the_stream_builds_the_same_message() -> None:
    sdk, _ = client()
    whole = sdk.messages.create(**BODY)
    with sdk.messages.stream(**BODY) as stream:
        names = [event.type for event in stream]
        built = stream.get_final_message()
    assert names[0] == "message_start" and names[-1] == "message_stop"
    for one, other in zip(built.content, whole.content, strict=True):
        left, right = one.model_dump(exclude={"signature"}), other.model_dump(exclude={"signature"})
        assert {k: left[k] for k in right} == right
    assert built.stop_reason == whole.stop_reason and built.usage.output_tokens == 6


def test_the_order_of_events() -> None:
    host = ScriptedHost(SCRIPT, USAGE)
    _, _, body = asyncio.run(respond(host, "/v1/messages", {**BODY, "stream": True}))
    events = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]
    names = [event["type"] for event in events]
    block = ["content_block_start", "content_block_delta", "content_block_delta"]
    assert names == [
        "message_start", *block, "content_block_delta", "content_block_stop", *block, "content_block_stop",
        *block, "content_block_stop", *block[:2], "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert [e["index"] for e in events if e["type"] == "content_block_start"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("finish", "reason", "sequence"),
    [
        (ChatFinish("stop"), "end_turn", None),
        (ChatFinish("stop", "###"), "stop_sequence", "###"),
        (ChatFinish("stop", 5), "end_turn", None),
        (ChatFinish("length"), "max_tokens", None),
    ],
)
def test_why_it_ended(finish: ChatFinish, reason: str, sequence: str | None) -> None:
    message = client([ContentDelta("x"), finish])[0].messages.create(**BODY)
    assert (message.stop_reason, message.stop_sequence) == (reason, sequence)


def test_arguments_cut_short_are_kept_as_text() -> None:
    parts = [ToolCallStart(0, "f", "c"), ToolArgumentsDelta(0, '{"a": "b'), ChatFinish("length")]
    (block,) = client(parts)[0].messages.create(**BODY).content
    assert block.type == "tool_use" and block.input == {"partial_json": '{"a": "b'}


def test_sampling_fields() -> None:
    body = translated(stop_sequences=["a", "b"], temperature=0.5, top_p=0.9, top_k=5, metadata={"user_id": "x"})
    expected = {"max_completion_tokens": 50, "stop": ["a", "b"], "temperature": 0.5, "top_p": 0.9, "top_k": 5}
    assert {name: body[name] for name in expected} == expected
    assert body["messages"] == [USER] and "metadata" not in body


def test_system_prompts() -> None:
    assert translated(system="Be brief.")["messages"][0] == {"role": "system", "content": "Be brief."}
    texts = ("x-anthropic-billing-header: abc", "Be ", "brief.")
    blocks = [{"type": "text", "text": text} for text in texts]
    assert translated(system=blocks)["messages"][0]["content"] == "Be brief."


def test_a_tool_loop() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "42"}]},
            {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
            {"type": "text", "text": "Go on."},
        ]},
    ]  # fmt: skip
    made = translated(messages=messages, tools=[{"name": "f", "input_schema": {"properties": {}}}])
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    assert made["messages"][1:] == [
        {"role": "assistant", "content": "I look.", "tool_calls": [call], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: no"},
        {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
    ]
    assert made["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    ]


@pytest.mark.parametrize(
    ("choice", "made"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_tool_choice(choice: dict[str, Any], made: Any) -> None:
    assert translated(tool_choice=choice)["tool_choice"] == made
    assert translated(tool_choice={**choice, "disable_parallel_tool_use": True})["parallel_tool_calls"] is False


def test_thinking_and_prefill() -> None:
    assert translated(thinking={"type": "enabled", "budget_tokens": 1024})["chat_template_kwargs"]["enable_thinking"]
    assert translated(thinking={"type": "enabled", "budget_tokens": 1024})["max_thinking_tokens"] == 1024
    off = translated(thinking={"type": "disabled"})["chat_template_kwargs"]
    assert off == {"enable_thinking": False, "thinking": False}
    made = translated(messages=[USER, {"role": "assistant", "content": "Sure:"}])
    assert made["continue_final_message"] is True and made["add_generation_prompt"] is False


def test_the_shape_of_an_answer_and_effort() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = translated(output_config={"format": {"type": "json_schema", "schema": schema}, "effort": "high"})
    assert made["response_format"]["json_schema"]["schema"] == schema
    assert made["chat_template_kwargs"] == {"reasoning_effort": "high"}
    tool = {"name": "f", "input_schema": schema, "strict": True}
    assert translated(tools=[tool])["tools"][0]["function"]["strict"] is True


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"model": ""}, "model"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "text only"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "wizard"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "Anthropic runs"),
        ({"tool_choice": {"type": "tool"}}, "name"),
        ({"thinking": {"type": "maybe"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": "many"}}, "budget_tokens"),
        ({"system": [{"type": "image"}]}, "system.0"),
        ({"mcp_servers": [{"type": "url", "url": "x", "name": "n"}]}, "mcp_servers"),
        ({"output_config": {"format": {"type": "text"}}}, "output_config.format"),
    ],
)
def test_what_cannot_be_is_refused(body: dict[str, Any], word: str) -> None:
    sdk, host = client()
    with pytest.raises(anthropic.BadRequestError, match=word) as caught:
        sdk.post("/v1/messages", cast_to=object, body={**BODY, **body})
    error = caught.value.body
    assert isinstance(error, dict) and error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
    assert not host.bodies


def test_counting() -> None:
    sdk, host = client()
    assert sdk.messages.count_tokens(model="m", messages=[{"role": "user", "content": "Hi"}]).input_tokens == 10
    assert host.bodies[0]["messages"] == [USER]


def test_a_budget_that_no_parser_can_keep_is_left_out() -> None:
    class NoParser(ScriptedHost):
        async def chat(self, call: EndpointCall, body: Any) -> Any:
            answer = await super().chat(call, body)
            if "max_thinking_tokens" in body:
                raise RequestError("it needs a reasoning parser", "max_thinking_tokens")
            return answer

    host = NoParser()
    asked = {**BODY, "thinking": {"type": "enabled", "budget_tokens": 2048}}
    status, _, said = asyncio.run(respond(host, "/v1/messages", asked))
    assert status == 200, said
    assert [body.get("max_thinking_tokens") for body in host.bodies] == [2048, None]
