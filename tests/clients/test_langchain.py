"""langchain-openai: chat and completions, whole, streamed, in batches, with usage, logprobs and tools."""

from __future__ import annotations

import asyncio

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from weather import forecast

QUESTION = [SystemMessage("Answer in one sentence."), HumanMessage("What is the capital of France?")]


@pytest.fixture
def chat(demo):
    return ChatOpenAI(base_url=f"{demo}/v1", api_key="none", model="demo", temperature=0, max_tokens=24, max_retries=0)


def test_a_message_with_its_usage(chat):
    answer = chat.invoke(QUESTION)
    assert isinstance(answer, AIMessage) and "Paris" in answer.content
    usage = answer.usage_metadata
    assert usage["input_tokens"] > 10 and usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert answer.response_metadata["finish_reason"] in ("stop", "length")


def test_a_stream_adds_up_to_the_message(chat):
    whole = chat.invoke(QUESTION)
    chunks = list(chat.stream(QUESTION, stream_usage=True))
    assert "".join(chunk.content for chunk in chunks) == whole.content and len(chunks) > 3
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    assert total.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]


def test_batches_and_coroutines_agree(chat):
    questions = [[HumanMessage(f"Say the number {n}.")] for n in range(4)]
    together = [answer.content for answer in chat.batch(questions)]

    async def each():
        return [answer.content for answer in await chat.abatch(questions)]

    assert together == asyncio.run(each())


def test_log_probabilities(chat):
    answer = chat.bind(logprobs=True, top_logprobs=2).invoke(QUESTION)
    entries = answer.response_metadata["logprobs"]["content"]
    said = "".join(entry["token"] for entry in entries)
    assert said.removesuffix("<|im_end|>") == answer.content
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)


def test_stops(chat):
    answer = chat.invoke([HumanMessage("Count: 1, 2, 3,")], stop=["5"])
    assert "5" not in answer.content


def test_completions(demo):
    model = OpenAI(base_url=f"{demo}/v1", api_key="none", model="demo", temperature=0, max_tokens=4, max_retries=0)
    assert "Paris" in model.invoke("The capital of France is")
    assert "".join(model.stream("The capital of France is")) == model.invoke("The capital of France is")
    first, second = model.generate(["The capital of France is", "The capital of Italy is"]).generations
    assert "Paris" in first[0].text and "Rome" in second[0].text


@tool
def get_weather(city: str, days: int) -> str:
    """Weather of a city."""
    return forecast(city, days)


@pytest.mark.parametrize("responses", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_loop(scripted, responses, stream):
    """On chat completions and on the Responses API."""
    model = ChatOpenAI(base_url=f"{scripted}/v1", api_key="none", model="actor", max_retries=0,
                       use_responses_api=responses).bind_tools([get_weather])  # fmt: skip

    def ask(messages):
        if not stream:
            return model.invoke(messages)
        total = None
        for chunk in model.stream(messages):
            total = chunk if total is None else total + chunk
        return total

    messages = [HumanMessage("ASK-BOTH")]
    first = ask(messages)
    assert [call["args"] for call in first.tool_calls] == [{"city": "Łódź", "days": 1}, {"city": "Oslo", "days": 3}]
    messages += [first, *(get_weather.invoke(call) for call in first.tool_calls)]
    last = ask(messages)
    assert last.text == "Take two umbrellas." and not last.tool_calls
