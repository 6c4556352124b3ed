"""Answers and chunks have exactly the types that the official SDK declares: it checks every one of them here.

But for chunks of completions: the SDK declares them as whole answers, whose finish_reason is never null.
"""

from __future__ import annotations

import openai
import pytest

MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def strict(tiny):
    with openai.OpenAI(
        base_url=f"{tiny.url}/v1", api_key="none", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


@pytest.fixture
def plain(tiny):
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("extra", [
    {}, {"logprobs": 2}, {"logprobs": 2, "n": 2}, {"stop": "!"}, {"extra_body": {"return_token_ids": True}},
    {"n": 2, "extra_body": {"use_beam_search": True}}, {"max_tokens": 0, "echo": True},
])  # fmt: skip
def test_completions(strict, plain, extra):
    body = {"model": "tiny", "prompt": "Hi", "max_tokens": 3, **extra}
    whole = strict.completions.create(**body)
    assert [c.index for c in whole.choices] == list(range(extra.get("n", 1)))
    chunks = list(plain.completions.create(**body, stream=True, stream_options={"include_usage": True}))
    for index, choice in enumerate(whole.choices):
        assert "".join(c.choices[0].text for c in chunks if c.choices and c.choices[0].index == index) == choice.text
    assert chunks[-1].usage == whole.usage and chunks[-1].choices == []


@pytest.mark.parametrize("extra", [
    {}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 2, "n": 2}, {"stop": ["!"]},
    {"extra_body": {"return_token_ids": True, "return_prompt_text": True}},
    {"n": 2, "extra_body": {"use_beam_search": True}},
])  # fmt: skip
def test_chat(strict, extra):
    body = {"model": "tiny", "messages": MESSAGES, "max_completion_tokens": 3, **extra}
    whole = strict.chat.completions.create(**body)
    chunks = list(strict.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}))
    for index, choice in enumerate(whole.choices):
        mine = [c.choices[0] for c in chunks if c.choices and c.choices[0].index == index]
        assert mine[0].delta.role == "assistant" and mine[-1].finish_reason == choice.finish_reason
        assert "".join(c.delta.content or "" for c in mine) == choice.message.content
    assert chunks[-1].usage == whole.usage and chunks[-1].choices == []


def test_models(strict):
    assert [card.id for card in strict.models.list()] == ["tiny", "alias"]
    assert strict.models.retrieve("tiny").object == "model"


def test_errors(strict):
    with pytest.raises(openai.BadRequestError) as told:
        strict.completions.create(model="tiny", prompt="x", max_tokens=10**6)
    assert told.value.param == "max_tokens" and told.value.type == "BadRequestError"
    with pytest.raises(openai.NotFoundError):
        strict.completions.create(model="nobody", prompt="x")
