"""pydantic-ai: an agent on the chat route, whole and streamed, with a history and a tool."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from weather import forecast


@pytest.fixture
def agent(demo):
    model = OpenAIChatModel("demo", provider=OpenAIProvider(base_url=f"{demo}/v1", api_key="none"))
    return Agent(
        model, system_prompt="Answer in one sentence.", model_settings={"temperature": 0.0, "max_tokens": 24}, retries=0
    )


def test_an_answer_with_its_usage_and_a_second_turn(agent):
    first = agent.run_sync("What is the capital of France?")
    assert "Paris" in first.output
    second = agent.run_sync("And where is it?", message_history=first.all_messages())
    assert second.output and len(second.all_messages()) == 4


def test_a_stream(agent):
    async def run():
        async with agent.run_stream("What is the capital of France?") as result:
            return [text async for text in result.stream_text(delta=True, debounce_by=None)]

    pieces = asyncio.run(run())
    assert len(pieces) > 3 and "".join(pieces) == agent.run_sync("What is the capital of France?").output


@pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel])
def test_a_tool_loop(scripted, kind):
    model = kind("actor", provider=OpenAIProvider(base_url=f"{scripted}/v1", api_key="none"))
    agent = Agent(model, retries=0)

    @agent.tool_plain
    def get_weather(city: str, days: int) -> str:
        """Weather of a city."""
        return forecast(city, days)

    async def both():
        whole = await agent.run("ASK-WEATHER")
        # A stream ends with the first text that it brings: this task has none before its calls.
        async with agent.run_stream("ASK-BOTH") as result:
            return whole.output, await result.get_output()

    assert asyncio.run(both()) == ("Take an umbrella.", "Take two umbrellas.")
