"""POST /v1/completions through the official client and by hand."""

from __future__ import annotations

import json

import httpx
import openai
import pytest


@pytest.fixture
def client(tiny):
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_text_is_what_the_engine_says(tiny, client):
    answer = client.completions.create(model="tiny", prompt="Hello", max_tokens=12)
    assert answer.choices[0].text == tiny.answer("Hello", 12)
    assert answer.choices[0].finish_reason == "length"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 12, 17)
    assert answer.id.startswith("cmpl-") and answer.object == "text_completion" and answer.model == "tiny"


def test_limit_defaults_to_sixteen(client):
    assert client.completions.create(model="alias", prompt="Hello").usage.completion_tokens == 16


def test_answers_carry_the_first_name(client):
    assert client.completions.create(model="alias", prompt="x", max_tokens=1).model == "tiny"


def test_stream_adds_up_to_the_whole(tiny, client):
    chunks = list(
        client.completions.create(
            model="tiny", prompt="Hello", max_tokens=12, stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(c.choices[0].text for c in chunks if c.choices) == tiny.answer("Hello", 12)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-2:] == [None, "length"]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 12
    assert len({c.id for c in chunks}) == 1
    assert all(c.usage is None for c in chunks[:-1])


def test_each_prompt_gets_its_choices(tiny, client):
    answer = client.completions.create(model="tiny", prompt=["one", "two"], max_tokens=4, n=2)
    texts = [c.text for c in answer.choices]
    assert texts == [tiny.answer("one", 4)] * 2 + [tiny.answer("two", 4)] * 2
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert answer.usage.prompt_tokens == 6 and answer.usage.completion_tokens == 16


def test_streamed_choices_interleave_and_are_complete(tiny, client):
    texts = {0: "", 1: "", 2: "", 3: ""}
    ends = {}
    for chunk in client.completions.create(model="tiny", prompt=["one", "two"], max_tokens=4, n=2, stream=True):
        choice = chunk.choices[0]
        texts[choice.index] += choice.text
        if choice.finish_reason:
            ends[choice.index] = choice.finish_reason
    assert list(texts.values()) == [tiny.answer("one", 4)] * 2 + [tiny.answer("two", 4)] * 2
    assert ends == dict.fromkeys(range(4), "length")


@pytest.mark.parametrize("as_list", [False, True])
def test_token_ids_are_a_prompt(tiny, client, as_list):
    ids = tiny.text.encode_prompt("Hello")
    answer = client.completions.create(model="tiny", prompt=[ids] if as_list else ids, max_tokens=5)
    assert answer.choices[0].text == tiny.answer("Hello", 5)


def test_stop_string_cuts_and_is_named(tiny, client):
    whole = tiny.answer("Hello", 12)
    stop = whole[4:6]
    answer = client.completions.create(model="tiny", prompt="Hello", max_tokens=12, stop=[stop])
    cut = whole.index(stop)
    assert answer.choices[0].text == whole[:cut]
    assert answer.choices[0].finish_reason == "stop" and answer.choices[0].model_extra["stop_reason"] == stop
    assert answer.usage.completion_tokens == cut + 2
    kept = client.completions.create(
        model="tiny", prompt="Hello", max_tokens=12, stop=stop, extra_body={"include_stop_str_in_output": True}
    )
    assert kept.choices[0].text == whole[: cut + 2]


def test_stop_string_ends_one_choice_only(tiny, client):
    """A stop string that only the first prompt's answer holds leaves the second alone."""
    first, second = tiny.answer("one", 30), tiny.answer("two", 30)
    stop = next(first[i : i + 2] for i in range(4, 20) if first[i : i + 2] not in second)
    answer = client.completions.create(model="tiny", prompt=["one", "two"], max_tokens=30, stop=stop)
    assert answer.choices[0].text == first[: first.index(stop)]
    assert answer.choices[1].text == second and answer.choices[1].finish_reason == "length"


def test_stop_token_id_is_named(tiny, client):
    whole = tiny.answer("Hello", 12)
    token = tiny.text.tokenizer.encode(whole[3])[0]
    answer = client.completions.create(
        model="tiny", prompt="Hello", max_tokens=12, extra_body={"stop_token_ids": [token], "return_token_ids": True}
    )
    choice = answer.choices[0]
    assert choice.text == whole[: whole.index(whole[3])]
    assert choice.finish_reason == "stop" and choice.model_extra["stop_reason"] == token
    assert choice.model_extra["token_ids"][-1] == token
    assert choice.model_extra["prompt_token_ids"] == tiny.text.encode_prompt("Hello")


def test_echo_with_logprobs(tiny, client):
    choice = client.completions.create(model="tiny", prompt="Hi!", max_tokens=3, echo=True, logprobs=2).choices[0]
    assert choice.text == "Hi!" + tiny.answer("Hi!", 3)
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.token_logprobs == [None, *[-0.5] * 5]
    assert choice.logprobs.text_offset == list(range(6))
    assert choice.logprobs.top_logprobs[0] is None
    assert choice.logprobs.top_logprobs[1]["!"] == -1.0, "the best token is id 0, which is '!'"
    assert choice.logprobs.top_logprobs[1]['"'] == -9999.0, "JSON has no minus infinity"
    assert choice.logprobs.top_logprobs[1]["i"] == -0.5, "the token that is there is among the alternatives"


def test_streamed_logprobs_add_up(client):
    request = {"model": "tiny", "prompt": "Hi!", "max_tokens": 6, "echo": True, "logprobs": 1}
    whole = client.completions.create(**request).choices[0].logprobs
    chunks = [c.choices[0].logprobs for c in client.completions.create(**request, stream=True)]
    for name in ("tokens", "token_logprobs", "text_offset"):
        assert [x for c in chunks for x in getattr(c, name)] == getattr(whole, name)


def test_scoring_a_prompt_generates_nothing(tiny, client):
    answer = client.completions.create(model="tiny", prompt="Hi!", max_tokens=0, echo=True, logprobs=1)
    choice = answer.choices[0]
    assert choice.text == "Hi!" and choice.finish_reason == "length" and len(choice.logprobs.tokens) == 3
    assert answer.usage.completion_tokens == 0
    with pytest.raises(openai.BadRequestError, match="max_tokens must be at least 1"):
        client.completions.create(model="tiny", prompt="Hi!", max_tokens=0)


def test_prompt_logprobs(tiny, client):
    answer = client.completions.create(model="tiny", prompt="Hi!", max_tokens=1, extra_body={"prompt_logprobs": 1})
    entries = answer.choices[0].model_extra["prompt_logprobs"]
    i = str(tiny.text.tokenizer.encode("i")[0])
    assert entries[0] is None and len(entries) == 3
    assert entries[1][i] == {"logprob": -0.5, "rank": 7, "decoded_token": "i"}
    assert entries[1]["0"] == {"logprob": -1.0, "rank": 1, "decoded_token": "!"}


def test_truncation_can_keep_the_beginning(tiny, client):
    answer = client.completions.create(
        model="tiny", prompt="Hello long", max_tokens=4, echo=True,
        extra_body={"truncate_prompt_tokens": 5, "truncation_side": "right"},
    )  # fmt: skip
    assert answer.choices[0].text == "Hello" + tiny.answer("Hello", 4)


def test_a_request_may_ask_for_larger_chunks(tiny, client):
    stream = client.completions.create(
        model="tiny", prompt="Hello", max_tokens=9, stream=True, extra_body={"stream_interval": 4}
    )
    texts = [chunk.choices[0].text for chunk in stream]
    assert [len(text) for text in texts] == [1, 4, 4] and "".join(texts) == tiny.answer("Hello", 9)


def test_many_stop_strings_are_one(tiny, client):
    whole = tiny.answer("Hello", 30)
    stops = [*(f"never {i}" for i in range(1000)), whole[20:23]]
    assert client.completions.create(
        model="tiny", prompt="Hello", max_tokens=30, stop=stops
    ).choices[0].text == whole[:20]


def test_a_gateways_priority_wins(serve):
    with serve(scheduling_policy="priority") as running:
        body = {"prompt": "Hello", "max_tokens": 2}
        headers = {"x-vllm-priority": "-3"}
        assert httpx.post(f"{running.url}/v1/completions", json=body, headers=headers).status_code == 200
        refused = httpx.post(f"{running.url}/v1/completions", json=body, headers={"x-vllm-priority": "high"})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "X-Vllm-Priority"
    with serve() as running:
        refused = httpx.post(f"{running.url}/v1/completions", json=body, headers=headers)
        assert refused.status_code == 400 and "priority is -3" in refused.json()["error"]["message"]


def test_answers_report_the_load_to_those_who_ask(tiny):
    def header(form: str | None, **more) -> str | None:
        headers = {} if form is None else {"endpoint-load-metrics-format": form}
        body = {"prompt": "x", "max_tokens": 1, **more}
        answer = httpx.post(f"{tiny.url}/v1/completions", json=body, headers=headers)
        return answer.headers.get("endpoint-load-metrics")

    assert header(None) is None and header("xml") is None and header("TEXT", stream=True) is None
    text = header("text")
    assert text.startswith("TEXT named_metrics.kv_cache_usage_perc=") and text.endswith("num_requests_waiting=0")
    load = json.loads(header("JSON").removeprefix("JSON "))["named_metrics"]
    assert set(load) == {"kv_cache_usage_perc", "num_requests_waiting"} and 0 <= load["kv_cache_usage_perc"] <= 1


def test_truncation_keeps_the_end(tiny, client):
    answer = client.completions.create(
        model="tiny", prompt="long Hello", max_tokens=4, echo=True, extra_body={"truncate_prompt_tokens": 5}
    )
    assert answer.choices[0].text == "Hello" + tiny.answer("Hello", 4)


def test_continuous_usage(tiny):
    body = {
        "prompt": "Hello", "max_tokens": 3, "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    with httpx.stream("POST", f"{tiny.url}/v1/completions", json=body) as response:
        events = [e for e in response.read().decode().split("\n\n") if e]
    import json

    counts = [json.loads(e.removeprefix("data: "))["usage"]["completion_tokens"] for e in events[:-1]]
    assert counts == [1, 2, 3, 3] and events[-1] == "data: [DONE]"
    assert response.headers["content-type"].startswith("text/event-stream")


def test_tokens_as_ids(client):
    answer = client.completions.create(
        model="tiny", prompt="Hi", max_tokens=1, logprobs=0, extra_body={"return_tokens_as_token_ids": True}
    )
    assert answer.choices[0].logprobs.tokens[0].startswith("token_id:")
