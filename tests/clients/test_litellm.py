"""litellm, as a client of an OpenAI server and of a hosted vLLM."""

from __future__ import annotations

import asyncio
import json

import litellm
import pytest
from weather import FUNCTION, forecast

QUESTION = [
    {"role": "system", "content": "Answer in one sentence."},
    {"role": "user", "content": "What is the capital of France?"},
]


@pytest.fixture(params=["openai/demo", "hosted_vllm/demo"])
def call(demo, request):
    return {"model": request.param, "api_base": f"{demo}/v1", "api_key": "none", "temperature": 0, "max_tokens": 24,
            "num_retries": 0}  # fmt: skip


def test_a_message_and_its_stream(call):
    whole = litellm.completion(messages=QUESTION, **call)
    assert "Paris" in whole.choices[0].message.content and whole.usage.completion_tokens > 0
    chunks = list(
        litellm.completion(messages=QUESTION, stream=True, stream_options={"include_usage": True}, **call)
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    rebuilt = litellm.stream_chunk_builder(chunks, messages=QUESTION)
    assert rebuilt.usage.completion_tokens == whole.usage.completion_tokens


def test_coroutines(call):
    async def several():
        return await asyncio.gather(*(litellm.acompletion(messages=QUESTION, **call) for _ in range(3)))

    texts = {answer.choices[0].message.content for answer in asyncio.run(several())}
    assert len(texts) == 1


def test_choices_and_log_probabilities(call):
    answer = litellm.completion(messages=QUESTION, **{**call, "temperature": 1}, n=2, seed=3, logprobs=True,
                                top_logprobs=1)  # fmt: skip
    assert len(answer.choices) == 2 and answer.choices[0].logprobs.content[0].logprob <= 0


def test_errors_are_bad_requests(call):
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(messages=QUESTION, **{**call, "max_tokens": 10**9})


def test_text_completion(demo):
    answer = litellm.text_completion(
        model="text-completion-openai/demo", prompt="The capital of France is", api_base=f"{demo}/v1", api_key="none",
        temperature=0, max_tokens=4,
    )  # fmt: skip
    assert "Paris" in answer.choices[0].text


@pytest.mark.parametrize("model", ["openai/actor", "hosted_vllm/actor"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_loop(scripted, model, stream):
    asked = {"model": model, "api_base": f"{scripted}/v1", "api_key": "none", "tools": [FUNCTION], "num_retries": 0}

    def ask(messages):
        answer = litellm.completion(messages=messages, stream=stream, **asked)
        whole = litellm.stream_chunk_builder(list(answer), messages=messages) if stream else answer
        return whole.choices[0].message

    messages = [{"role": "user", "content": "ASK-WEATHER"}]
    message = ask(messages)
    assert message.reasoning_content == "I look it up.\n"
    (call,) = message.tool_calls
    result = forecast(**json.loads(call.function.arguments))
    messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": result}]
    assert ask(messages).content == "Take an umbrella."


def test_the_messages_api(scripted):
    answer = litellm.completion(model="anthropic/actor", api_base=scripted, api_key="none", max_tokens=500,
                                num_retries=0, messages=[{"role": "user", "content": "ASK-WEATHER"}],
                                tools=[FUNCTION])  # fmt: skip
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Łódź", "days": 2}
