"""The embedded model, served and asked as a person would."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import threading

import anthropic
import httpx
import openai
import pytest

pytestmark = pytest.mark.model

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(demo):
    with openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_the_answer_is_right(client):
    answer = client.completions.create(model="demo", prompt="The capital of France is", temperature=0, max_tokens=4)
    assert "Paris" in answer.choices[0].text
    answer = client.chat.completions.create(model="demo", messages=QUESTION, temperature=0, max_tokens=40)
    assert len(answer.choices[0].message.content.split()) >= 3


def test_a_stream_says_the_same(client):
    request = {"model": "demo", "messages": QUESTION, "temperature": 0, "max_tokens": 40}
    whole = client.chat.completions.create(**request)
    chunks = list(client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_anthropics_client_gets_the_same_answer(demo, client):
    said = client.chat.completions.create(model="demo", messages=QUESTION, temperature=0, max_tokens=24)
    with anthropic.Anthropic(base_url=demo, api_key="none", max_retries=0) as other:
        asked = {"model": "demo", "messages": QUESTION, "max_tokens": 24, "extra_body": {"temperature": 0}}
        whole = other.messages.create(**asked)
        assert whole.content[0].text == said.choices[0].message.content
        assert whole.usage.output_tokens == said.usage.completion_tokens
        with other.messages.stream(**asked) as stream:
            assert "".join(stream.text_stream) == whole.content[0].text
        counted = other.messages.count_tokens(model="demo", messages=QUESTION)
        assert counted.input_tokens == said.usage.prompt_tokens
        with pytest.raises(anthropic.NotFoundError, match="nobody"):
            other.messages.create(**{**asked, "model": "nobody"})


def test_log_probabilities_are_probabilities(client):
    answer = client.completions.create(model="demo", prompt="One, two, three,", temperature=0, max_tokens=8, logprobs=5)
    logprobs = answer.choices[0].logprobs
    assert "".join(logprobs.tokens) == answer.choices[0].text
    for chosen, top in zip(logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert len(top) == 5 and max(top.values()) == chosen <= 0, "greedy takes the most likely token"


def test_a_seed_gives_the_same_again_and_choices_differ(client):
    request = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 16, "n": 3, "seed": 7, "temperature": 1.0}
    first, again = (client.completions.create(**request) for _ in range(2))
    texts = [c.text for c in first.choices]
    assert texts == [c.text for c in again.choices] and len(set(texts)) == 3
    alone = client.completions.create(**{**request, "n": 1})
    assert alone.choices[0].text == texts[0]


def test_stop_and_limits(client):
    answer = client.completions.create(model="demo", prompt="1, 2, 3, 4,", temperature=0, max_tokens=64, stop=["7"])
    assert answer.choices[0].finish_reason == "stop" and "7" not in answer.choices[0].text
    with pytest.raises(openai.BadRequestError, match="8192"):
        client.completions.create(model="demo", prompt="x", max_tokens=100_000)


def test_curl_from_the_ready_line(serve):
    """The line a person copies works as it stands."""
    with serve("--kv-cache-memory-bytes", "256M") as started:
        started.wait_ready()
        hint = next(line for line in started.lines if "try: curl" in line).split("try: ", 1)[1]
        done = subprocess.run(shlex.split(hint), capture_output=True, text=True, timeout=120)
        events = [e for e in done.stdout.split("\n\n") if e]
        assert events[-1] == "data: [DONE]"
        assert json.loads(events[0].removeprefix("data: "))["choices"][0]["delta"]["role"] == "assistant"
        assert started.stop(signal.SIGTERM) == 0
        assert not any("Traceback" in line for line in started.lines)


def test_start_says_what_is_slow_and_ctrl_c_lets_requests_finish(serve, until):
    with serve("demo", "--kv-cache-memory-bytes", "256M", "--served-model-name", "small") as started:
        url = started.wait_ready()
        assert re.search(r"serving demo", started.lines[0])
        assert any(re.fullmatch(r"  \S.*: \d+\.\d s", line) for line in started.lines), started.said
        answers: list[httpx.Response] = []
        body = {"prompt": "Once upon a time", "max_tokens": 40, "ignore_eos": True}
        call = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{url}/v1/completions", json=body, timeout=120))
        )
        call.start()
        until(lambda: 'num_requests_running{engine="0",model_name="small"} 1.0' in httpx.get(f"{url}/metrics").text, 60)
        assert started.stop(signal.SIGINT) == 0
        call.join(10)
        assert answers[0].status_code == 200 and answers[0].json()["usage"]["completion_tokens"] == 40
