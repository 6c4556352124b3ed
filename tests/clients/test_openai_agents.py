"""openai-agents: a run that calls a tool, on chat completions and on responses, whole and streamed."""

from __future__ import annotations

import asyncio

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from weather import forecast

set_tracing_disabled(True)


@function_tool
def get_weather(city: str, days: int) -> str:
    """Weather of a city."""
    return forecast(city, days)


@pytest.fixture(params=[OpenAIChatCompletionsModel, OpenAIResponsesModel])
def agent(scripted, request):
    model = request.param("actor", AsyncOpenAI(base_url=f"{scripted}/v1", api_key="none", max_retries=0))
    return Agent("Clerk", instructions="Be brief.", model=model, tools=[get_weather])


@pytest.mark.parametrize(
    ("task", "calls", "end"), [("ASK-WEATHER", 1, "Take an umbrella."), ("ASK-BOTH", 2, "Take two umbrellas.")]
)
def test_a_run(agent, task, calls, end):
    async def whole():
        return await Runner.run(agent, task)

    async def streamed():
        result = Runner.run_streamed(agent, task)
        kinds = {event.type async for event in result.stream_events()}
        assert {"raw_response_event", "run_item_stream_event"} <= kinds
        return result

    async def both():
        return [await whole(), await streamed()]

    for result in asyncio.run(both()):
        assert result.final_output == end
        assert sum(item.type == "tool_call_output_item" for item in result.new_items) == calls


def test_a_second_turn(agent):
    async def turns():
        first = await Runner.run(agent, "ASK-WEATHER")
        asked = [*first.to_input_list(), {"role": "user", "content": "ASK-THOUGHT"}]
        return await Runner.run(agent, asked)

    assert asyncio.run(turns()).final_output == "It is 4."


@pytest.mark.parametrize("kind", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
def test_the_demo_model(demo, kind):
    model = kind("demo", AsyncOpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0))
    settings = ModelSettings(temperature=0, max_tokens=24)
    agent = Agent("Clerk", instructions="Answer in one sentence.", model=model, model_settings=settings)
    assert "Paris" in asyncio.run(Runner.run(agent, "What is the capital of France?")).final_output
