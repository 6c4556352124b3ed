"""POST /v1/chat/completions through the official client and by hand."""

from __future__ import annotations

import json

import httpx
import openai
import pytest

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
PROMPT = "<system>Be brief.|<user>Hello<assistant>"
TOOL = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def client(tiny):
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def events(tiny, **body):
    """Raw events of a stream, decoded; the last must be [DONE]."""
    with httpx.stream("POST", f"{tiny.url}/v1/chat/completions", json={"stream": True, **body}) as response:
        assert response.status_code == 200
        lines = [e.removeprefix("data: ") for e in response.read().decode().split("\n\n") if e]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_message_is_what_the_engine_says(tiny, client):
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES, max_completion_tokens=10)
    choice = answer.choices[0]
    assert choice.message.content == tiny.answer(PROMPT, 10) and choice.message.role == "assistant"
    assert choice.message.tool_calls is None and choice.finish_reason == "length"
    assert answer.usage.prompt_tokens == len(PROMPT) and answer.usage.completion_tokens == 10
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion"


def test_max_completion_tokens_wins(client):
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES, max_completion_tokens=3, max_tokens=9)
    assert answer.usage.completion_tokens == 3


def test_without_a_limit_the_context_is_the_limit(client):
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES)
    assert answer.usage.total_tokens == 512 and answer.choices[0].finish_reason == "length"


def test_stream_has_role_deltas_finish_and_usage(tiny):
    got = events(tiny, messages=MESSAGES, max_tokens=4, stream_options={"include_usage": True})
    first, *deltas, last, usage = got
    assert first["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert all(e["object"] == "chat.completion.chunk" and e["id"] == first["id"] for e in got)
    assert all("usage" not in e for e in got[:-1])
    assert [e["choices"][0]["finish_reason"] for e in deltas] == [None] * 3
    assert last["choices"][0]["finish_reason"] == "length" and last["choices"][0]["stop_reason"] is None
    assert "".join(e["choices"][0]["delta"]["content"] for e in got[:-1]) == tiny.answer(PROMPT, 4)
    assert usage["choices"] == [] and usage["usage"] == {
        "prompt_tokens": len(PROMPT), "completion_tokens": 4, "total_tokens": len(PROMPT) + 4
    }


def test_sdk_streams(tiny, client):
    stream = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=6, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in stream) == tiny.answer(PROMPT, 6)


def test_choices_of_a_stream(tiny, client):
    texts = {0: "", 1: "", 2: ""}
    for chunk in client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=5, n=3, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert set(texts.values()) == {tiny.answer(PROMPT, 5)}


def test_logprobs_have_exactly_the_alternatives_asked_for(tiny, client):
    choice = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=2, logprobs=True, top_logprobs=2
    ).choices[0]
    assert "".join(t.token for t in choice.logprobs.content) == choice.message.content
    for token in choice.logprobs.content:
        assert token.bytes == list(token.token.encode()) and token.logprob == -0.5
        assert [(a.token, a.logprob) for a in token.top_logprobs] == [("!", -1.0), ('"', -9999.0)]
    none = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=1, logprobs=True)
    assert none.choices[0].logprobs.content[0].top_logprobs == []


def test_streamed_logprobs_and_ids(tiny):
    got = events(tiny, messages=MESSAGES, max_tokens=3, logprobs=True, top_logprobs=1, return_token_ids=True)
    assert got[0]["prompt_token_ids"] == tiny.text.encode_prompt(PROMPT)
    assert all("prompt_token_ids" not in e for e in got[1:])
    tokens = [t for e in got[1:] for t in e["choices"][0]["logprobs"]["content"]]
    ids = [i for e in got[1:] for i in e["choices"][0]["token_ids"]]
    assert "".join(t["token"] for t in tokens) == tiny.answer(PROMPT, 3)
    assert tiny.text.tokenizer.decode(ids) == tiny.answer(PROMPT, 3)


def test_stop_string_held_back_comes_or_goes(tiny, client):
    whole = tiny.answer(PROMPT, 20)
    got = events(tiny, messages=MESSAGES, max_tokens=20, stop=[whole[5:8]])
    assert "".join(e["choices"][0]["delta"]["content"] for e in got) == whole[:5]
    assert got[-1]["choices"][0]["finish_reason"] == "stop" and got[-1]["choices"][0]["stop_reason"] == whole[5:8]
    # The beginning of a stop string that never completes is text.
    never = whole[18:] + "never"
    got = events(tiny, messages=MESSAGES, max_tokens=20, stop=[never])
    assert "".join(e["choices"][0]["delta"]["content"] for e in got) == whole


def test_continue_final_message(tiny, client):
    messages = [*MESSAGES, {"role": "assistant", "content": "I am"}]
    prompt = "<system>Be brief.|<user>Hello|<assistant>I am"
    body = {"continue_final_message": True, "add_generation_prompt": False}
    answer = client.chat.completions.create(model="tiny", messages=messages, max_tokens=5, extra_body=body)
    assert answer.choices[0].message.content == tiny.answer(prompt, 5)
    echoed = client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=5, extra_body={**body, "echo": True}
    )
    assert echoed.choices[0].message.content == "I am" + tiny.answer(prompt, 5)
    with pytest.raises(openai.BadRequestError, match="cannot both be true"):
        client.chat.completions.create(
            model="tiny", messages=messages, max_tokens=5, extra_body={**body, "add_generation_prompt": True}
        )


def test_what_reaches_the_template(serve):
    template = "{{ documents[0].title }}|{{ style }}|{{ reasoning_effort }}|{{ messages[0].content }}"
    body = {"messages": [{"role": "user", "content": "hi"}], "chat_template": template, "max_tokens": 1,
            "documents": [{"title": "t", "text": "x"}], "chat_template_kwargs": {"style": "terse"},
            "reasoning_effort": "low", "return_prompt_text": True}  # fmt: skip
    with serve(trust_request_chat_template=True) as running:
        answer = httpx.post(f"{running.url}/v1/chat/completions", json=body).json()
        assert answer["prompt_text"] == "t|terse|low|hi"
        clash = {**body, "chat_template_kwargs": {"messages": []}}
        refused = httpx.post(f"{running.url}/v1/chat/completions", json=clash)
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "chat_template_kwargs"


def test_the_prompt_as_it_was_read(tiny):
    body = {"messages": MESSAGES, "max_tokens": 2, "return_prompt_text": True}
    assert httpx.post(f"{tiny.url}/v1/chat/completions", json=body).json()["prompt_text"] == PROMPT
    got = events(tiny, **body)
    assert [e.get("prompt_text") for e in got] == [PROMPT, None, None]


def test_developers_are_the_system_where_the_template_knows_no_developer(tiny, client):
    messages = [{"role": "developer", "content": "Be brief."}, MESSAGES[1]]
    answer = client.chat.completions.create(model="tiny", messages=messages, max_tokens=5)
    assert answer.choices[0].message.content == tiny.answer(PROMPT, 5)


def test_content_may_be_null_and_tool_messages_are_rendered(tiny, client):
    call = {"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Time?"}, {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "noon"},
    ]  # fmt: skip
    answer = client.chat.completions.create(model="tiny", messages=messages, max_tokens=5)
    prompt = "<user>Time?|<assistant>|<tool>noon<assistant>"
    assert answer.choices[0].message.content == tiny.answer(prompt, 5)


def test_text_parts_are_text(tiny, client):
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    answer = client.chat.completions.create(model="tiny", messages=parts, max_tokens=5)
    assert answer.choices[0].message.content == tiny.answer("<user>Hel\nlo<assistant>", 5)
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}]
    with pytest.raises(openai.BadRequestError, match="text only"):
        client.chat.completions.create(model="tiny", messages=image, max_tokens=5)


def test_tools_reach_the_template_but_are_not_called(tiny, client):
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=5, tools=[TOOL], tool_choice="none"
    )
    assert answer.choices[0].message.content == tiny.answer("[tools:clock]" + PROMPT, 5)
    named = {"type": "function", "function": {"name": "clock"}}
    needs = "--enable-auto-tool-choice and --tool-call-parser"
    form = "no backend of structured output"
    for choice, why in ((openai.omit, needs), ("auto", needs), ("required", form), (named, form)):
        with pytest.raises(openai.BadRequestError, match=why):
            client.chat.completions.create(model="tiny", messages=MESSAGES, tools=[TOOL], tool_choice=choice)
    with pytest.raises(openai.BadRequestError, match="does not declare"):
        client.chat.completions.create(
            model="tiny", messages=MESSAGES, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "x"}}
        )


def test_tools_can_be_kept_out_of_the_prompt(serve):
    body = {"messages": MESSAGES, "tools": [TOOL], "tool_choice": "none", "max_tokens": 5}
    with serve(exclude_tools_when_tool_choice_none=True) as running:
        answer = httpx.post(f"{running.url}/v1/chat/completions", json=body).json()
        assert answer["choices"][0]["message"]["content"] == running.answer(PROMPT, 5)


def test_a_template_of_the_request_needs_trust(serve, client):
    body = {"chat_template": "{{ messages[0].content }}!"}
    with pytest.raises(openai.BadRequestError, match="trust-request-chat-template"):
        client.chat.completions.create(model="tiny", messages=MESSAGES, extra_body=body)
    with (
        serve(trust_request_chat_template=True) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="none") as trusting,
    ):
        answer = trusting.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4, extra_body=body)
        assert answer.choices[0].message.content == running.answer("Be brief.!", 4)
