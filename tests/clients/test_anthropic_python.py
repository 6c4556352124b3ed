"""The official Anthropic SDK for Python on the Messages API."""

from __future__ import annotations

import json

import anthropic
import pytest
from anthropic import beta_tool
from pydantic import BaseModel
from weather import SCHEMA, forecast

TOOL = {"name": "get_weather", "description": "Weather of a city.", "input_schema": SCHEMA}
ASKED = {"model": "actor", "max_tokens": 500, "tools": [TOOL], "system": [
    {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]}  # fmt: skip


@pytest.fixture
def client(scripted):
    with anthropic.Anthropic(base_url=scripted, api_key="none", max_retries=0) as made:
        yield made


def whole(client, messages):
    return client.messages.create(messages=messages, **ASKED)


def streamed(client, messages):
    """The SDK's own accumulator of a stream."""
    with client.messages.stream(messages=messages, **ASKED) as stream:
        return stream.get_final_message()


@pytest.mark.parametrize("ask", [whole, streamed])
def test_a_tool_loop(client, ask):
    messages = [{"role": "user", "content": "ASK-WEATHER"}]
    first = ask(client, messages)
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
    thought, said, use = first.content
    assert thought.thinking == "I look it up.\n" and thought.signature and said.text == "Let me see.\n"
    assert (use.name, use.input, first.stop_reason) == ("get_weather", {"city": "Łódź", "days": 2}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": use.id, "content": forecast(**use.input)}
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    last = ask(client, messages)
    assert last.content[-1].text == "Take an umbrella." and last.stop_reason == "end_turn"
    assert last.usage.input_tokens + last.usage.cache_read_input_tokens > first.usage.input_tokens


@pytest.mark.parametrize("ask", [whole, streamed])
def test_parallel_calls(client, ask):
    messages = [{"role": "user", "content": "ASK-BOTH"}]
    first = ask(client, messages)
    uses = [block for block in first.content if block.type == "tool_use"]
    assert [use.input for use in uses] == [{"city": "Łódź", "days": 1}, {"city": "Oslo", "days": 3}]
    assert len({use.id for use in uses}) == 2
    results = [
        {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": forecast(**use.input)}]}
        for use in uses
    ]
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    assert ask(client, messages).content[-1].text == "Take two umbrellas."


def test_the_order_of_events(client):
    asked = {**ASKED, "thinking": {"type": "adaptive"}, "messages": [{"role": "user", "content": "ASK-WEATHER"}]}
    with client.messages.create(**asked, stream=True) as stream:
        events = list(stream)
    names = [event.type for event in events]
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"]
    starts = [event.index for event in events if event.type == "content_block_start"]
    stops = [event.index for event in events if event.type == "content_block_stop"]
    kinds = [event.delta.type for event in events if event.type == "content_block_delta"]
    assert starts == stops == [0, 1, 2] and events[-2].usage.output_tokens > 10
    assert list(dict.fromkeys(kinds)) == ["thinking_delta", "signature_delta", "text_delta", "input_json_delta"]


def test_the_tool_runner(client):
    @beta_tool
    def get_weather(city: str, days: int) -> str:
        """Weather of a city.

        Args:
            city: Where.
            days: For how long.
        """
        return forecast(city, days)

    asked = {name: value for name, value in ASKED.items() if name != "tools"}
    for stream in (False, True):
        runner = client.beta.messages.tool_runner(
            tools=[get_weather], messages=[{"role": "user", "content": "ASK-WEATHER"}], stream=stream, **asked
        )
        assert runner.until_done().content[-1].text == "Take an umbrella."


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


def test_a_model_out_of_text(client):
    asked = {"model": "actor", "max_tokens": 500, "messages": [{"role": "user", "content": "ASK-PERSON"}]}
    answer = client.messages.parse(output_format=Person, **asked)
    assert answer.parsed_output == Person(name='Ada "Łódź" L.', age=36)


def test_counting(client):
    messages = [{"role": "user", "content": "Hello"}]
    few = client.messages.count_tokens(model="actor", messages=messages).input_tokens
    more = client.messages.count_tokens(model="actor", messages=messages, tools=[TOOL], system="Be brief.").input_tokens
    said = client.messages.create(model="actor", max_tokens=1, messages=messages)
    assert 0 < few < more and few == said.usage.input_tokens + said.usage.cache_read_input_tokens
    assert said.stop_reason == "max_tokens"


def test_errors(client):
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="nobody", max_tokens=1, messages=[{"role": "user", "content": "x"}])
    with pytest.raises(anthropic.BadRequestError, match="text only"):
        source = {"type": "url", "url": "http://127.0.0.1/x.png"}
        picture = {"role": "user", "content": [{"type": "image", "source": source}]}
        client.messages.create(model="actor", max_tokens=1, messages=[picture])


def test_the_demo_model(demo):
    with anthropic.Anthropic(base_url=demo, api_key="none", max_retries=0) as client:
        question = {"role": "user", "content": "What is the capital of France?"}
        asked = {"model": "demo", "max_tokens": 24, "system": "Answer in one sentence.", "messages": [question]}
        asked["extra_body"] = {"temperature": 0}
        answer = client.messages.create(**asked)
        assert "Paris" in answer.content[0].text
        with client.messages.stream(**asked) as stream:
            assert "".join(stream.text_stream) == answer.content[0].text


def test_the_demo_model_is_held_to_a_call_and_to_a_shape(demo):
    """What no small model does by itself."""
    with anthropic.Anthropic(base_url=demo, api_key="none", max_retries=0) as client:
        asked = {"model": "demo", "max_tokens": 120, "messages": [{"role": "user", "content": "The weather in Oslo?"}]}
        forced = client.messages.create(tools=[TOOL], tool_choice={"type": "tool", "name": "get_weather"}, **asked)
        (use,) = forced.content
        assert use.name == "get_weather" and isinstance(use.input["city"], str) and isinstance(use.input["days"], int)
        schema = {"type": "object", "properties": {"days": {"enum": [1, 2, 3]}}, "required": ["days"],
                  "additionalProperties": False}  # fmt: skip
        config = {"format": {"type": "json_schema", "schema": schema}}
        shaped = client.messages.create(output_config=config, **asked)
        assert json.loads(shaped.content[0].text)["days"] in (1, 2, 3)
