"""The official OpenAI SDK for Python: tool loops, reasoning, parallel calls and the Responses API."""

from __future__ import annotations

import json
import time

import openai
import pytest
from pydantic import BaseModel
from weather import FUNCTION, NOW, SCHEMA, forecast, half_past

RUN = {"get_weather": forecast, "now": half_past}
TOOL = {"type": "function", "name": "get_weather", "description": "Weather of a city.", "parameters": SCHEMA}


@pytest.fixture
def client(scripted):
    with openai.OpenAI(base_url=f"{scripted}/v1", api_key="none", max_retries=0) as made:
        yield made


def chat_whole(client, messages):
    answer = client.chat.completions.create(model="actor", messages=messages, tools=[FUNCTION, NOW])
    return answer.choices[0].message, answer.choices[0].finish_reason


def chat_streamed(client, messages):
    """The SDK's own accumulator of a stream."""
    with client.chat.completions.stream(model="actor", messages=messages, tools=[FUNCTION, NOW]) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    return answer.choices[0].message, answer.choices[0].finish_reason


@pytest.mark.parametrize("ask", [chat_whole, chat_streamed])
@pytest.mark.parametrize(
    ("task", "calls", "end"),
    [
        ("ASK-WEATHER", [("get_weather", {"city": "Łódź", "days": 2})], "Take an umbrella."),
        ("ASK-BOTH", [("get_weather", {"city": c, "days": d}) for c, d in (("Łódź", 1), ("Oslo", 3))],
         "Take two umbrellas."),
        ("ASK-TIME", [("now", {})], "It is half past twelve."),
    ],
)  # fmt: skip
def test_a_tool_loop(client, ask, task, calls, end):
    messages = [{"role": "user", "content": task}]
    message, reason = ask(client, messages)
    made = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
    assert (made, reason) == (calls, "tool_calls")
    assert (message.content or None) == ("Let me see.\n" if task == "ASK-WEATHER" else None)
    messages.append(message.model_dump(exclude_unset=True))
    for call in message.tool_calls:
        result = RUN[call.function.name](**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    message, reason = ask(client, messages)
    assert (message.content, message.tool_calls or None, reason) == (end, None, "stop")


@pytest.mark.parametrize("ask", [chat_whole, chat_streamed])
def test_reasoning(client, ask):
    message, _ = ask(client, [{"role": "user", "content": "ASK-THOUGHT"}])
    assert (message.content, message.reasoning) == ("It is 4.", "Two and two.\n")


def respond(client, **body):
    return client.responses.create(model="actor", tools=[TOOL], **body)


def stream_response(client, **body):
    with client.responses.stream(model="actor", tools=[TOOL], **body) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


@pytest.mark.parametrize("ask", [respond, stream_response])
@pytest.mark.parametrize("kept", [True, False])
def test_a_tool_loop_of_responses(client, ask, kept):
    """The items are sent back, or the server goes on from those that it kept."""
    asked = [{"role": "user", "content": "ASK-WEATHER"}]
    first = ask(client, input=asked, store=kept)
    thought, said, call = first.output
    assert thought.content[0].text == "I look it up.\n" and said.content[0].text == "Let me see.\n"
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Łódź", "days": 2})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": forecast("Łódź", 2)}
    if kept:
        last = ask(client, input=[result], previous_response_id=first.id)
    else:
        items = [item.model_dump(exclude={"parsed_arguments"}, exclude_none=True) for item in first.output]
        last = ask(client, input=[*asked, *items, result], store=False)
    assert last.output_text == "Take an umbrella." and last.status == "completed"
    assert last.usage.output_tokens_details.reasoning_tokens > 0


def test_responses_are_kept_told_again_and_forgotten(client):
    with client.responses.create(model="actor", input="ASK-THOUGHT", stream=True) as stream:
        events = list(stream)
    kept = client.responses.retrieve(events[-1].response.id)
    assert kept.output_text == "It is 4." and kept.usage == events[-1].response.usage
    with client.responses.retrieve(kept.id, stream=True, starting_after=4) as again:
        assert [event.sequence_number for event in again] == [event.sequence_number for event in events[5:]]
    items = client.responses.input_items.list(kept.id).data
    assert [(item.role, item.content[0].text) for item in items] == [("user", "ASK-THOUGHT")]
    client.responses.delete(kept.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(kept.id)


def test_a_response_in_the_background(client):
    response = client.responses.create(model="actor", input="ASK-THOUGHT", background=True)
    deadline = time.monotonic() + 60
    while response.status in ("queued", "in_progress"):
        assert time.monotonic() < deadline
        response = client.responses.retrieve(response.id)
    assert response.status == "completed" and response.output_text == "It is 4."


def test_a_stream_of_work_in_the_background_is_taken_up_again(client):
    with client.responses.create(model="actor", input="ASK-LONG", background=True, stream=True) as stream:
        first = next(iter(stream))
    with client.responses.retrieve(first.response.id, stream=True, starting_after=first.sequence_number) as again:
        events = list(again)
    assert [event.sequence_number for event in events] == list(range(1, len(events) + 1))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == "word " * 400 == events[-1].response.output_text and events[-1].type == "response.completed"


def test_a_response_that_is_cancelled(demo):
    with openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0) as client:
        asked = {"model": "demo", "input": "Count to a thousand.", "background": True}
        begun = client.responses.create(**asked, extra_body={"ignore_eos": True})
        assert client.responses.cancel(begun.id).status == "cancelled"
        assert client.responses.retrieve(begun.id).status == "cancelled"


def test_the_demo_model_answers_responses(demo):
    with openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0) as client:
        asked = {"model": "demo", "temperature": 0, "max_output_tokens": 24, "instructions": "Answer in one sentence."}
        first = client.responses.create(input="What is the capital of France?", **asked)
        assert "Paris" in first.output_text and first.usage.output_tokens > 0
        second = client.responses.create(input="And of Italy?", previous_response_id=first.id, **asked)
        assert second.usage.input_tokens > first.usage.total_tokens
        with client.responses.stream(input="What is the capital of France?", **asked) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert text == first.output_text


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


def test_models_out_of_text(client):
    asked = [{"role": "user", "content": "ASK-PERSON"}]
    chat = client.chat.completions.parse(model="actor", messages=asked, response_format=Person)
    assert chat.choices[0].message.parsed == Person(name='Ada "Łódź" L.', age=36)
    response = client.responses.parse(model="actor", input=asked, text_format=Person)
    assert response.output_parsed == chat.choices[0].message.parsed


def test_the_demo_model_is_held_to_a_call(demo):
    """What no small model does by itself; the Responses API declares tools its own way."""
    with openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0) as client:
        asked = [{"role": "user", "content": "The weather in Oslo?"}]
        chat = client.chat.completions.create(model="demo", messages=asked, tools=[FUNCTION], tool_choice="required",
                                              max_completion_tokens=120)  # fmt: skip
        response = client.responses.create(model="demo", input=asked, tools=[TOOL], tool_choice="required",
                                           max_output_tokens=120)  # fmt: skip
        for call in (chat.choices[0].message.tool_calls[0].function, response.output[-1]):
            arguments = json.loads(call.arguments)
            assert call.name == "get_weather" and isinstance(arguments["days"], int)
