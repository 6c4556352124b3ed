"""POST /inference/v1/generate, aborting by id, and the routes that need a switch."""

from __future__ import annotations

import json
import threading

import httpx
import pytest

from turret.testing.null_engine import null_tokens

VOCAB = 94
IDS = [1, 2, 3]


def generate(running, **body):
    response = httpx.post(f"{running.url}/inference/v1/generate", json={"token_ids": IDS, **body})
    return response.status_code, response.json()


def test_token_ids_in_token_ids_out(tiny):
    status, answer = generate(tiny, sampling_params={"max_tokens": 5, "n": 2}, request_id="mine")
    assert status == 200 and answer["request_id"] == "generate-tokens-mine"
    assert [c["token_ids"] for c in answer["choices"]] == [null_tokens(IDS, 5, VOCAB)] * 2
    assert [(c["index"], c["finish_reason"], c["logprobs"]) for c in answer["choices"]] == [
        (0, "length", None), (1, "length", None)
    ]  # fmt: skip
    assert answer["kv_transfer_params"] is None and answer["prompt_logprobs"] is None
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 10, "total_tokens": 13}


def test_the_limit_defaults_as_sampling_params_do(tiny):
    assert len(generate(tiny)[1]["choices"][0]["token_ids"]) == 16
    unlimited = generate(tiny, sampling_params={"max_tokens": None})[1]
    assert unlimited["usage"]["total_tokens"] == 512


def test_log_probabilities_name_tokens_by_id(tiny):
    sampling = {"max_tokens": 1, "logprobs": 1, "prompt_logprobs": 1}
    answer = generate(tiny, sampling_params=sampling)[1]
    (entry,) = answer["choices"][0]["logprobs"]["content"]
    assert entry["token"] == f"token_id:{null_tokens(IDS, 1, VOCAB)[0]}"
    assert [a["token"] for a in entry["top_logprobs"]] == ["token_id:0"]
    assert answer["prompt_logprobs"][0] is None and set(answer["prompt_logprobs"][1]) == {"2", "0"}


def test_a_stream_says_the_same(tiny):
    body = {"token_ids": IDS, "stream": True, "sampling_params": {"max_tokens": 5},
            "stream_options": {"include_usage": True}}  # fmt: skip
    events = httpx.post(f"{tiny.url}/inference/v1/generate", json=body).text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    *chunks, usage = [json.loads(e.removeprefix("data: ")) for e in events[:-2]]
    ids = [i for c in chunks for i in c["choices"][0]["token_ids"]]
    assert ids == null_tokens(IDS, 5, VOCAB) and usage["usage"]["completion_tokens"] == 5
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert len({c["request_id"] for c in chunks}) == 1


def test_stops(tiny):
    ids = null_tokens(IDS, 5, VOCAB)
    choice = generate(tiny, sampling_params={"max_tokens": 5, "stop_token_ids": [ids[2]]})[1]["choices"][0]
    assert (choice["token_ids"], choice["stop_reason"]) == (ids[: ids.index(ids[2]) + 1], ids[2])
    text = tiny.text.tokenizer.decode(ids[1:3])
    choice = generate(tiny, sampling_params={"max_tokens": 5, "stop": text})[1]["choices"][0]
    assert (choice["token_ids"], choice["stop_reason"]) == (ids[:3], text)


@pytest.mark.parametrize(("change", "param"), [
    ({"features": {"a": 1}}, "features"), ({"output_mode": "text"}, "output_mode"), ({"token_ids": []}, "token_ids"),
    ({"token_ids": [-1]}, "token_ids"), ({"token_ids": [99999]}, "token_ids"),
    ({"sampling_params": {"temperature": -1}}, "temperature"),
    ({"sampling_params": {"extra_args": {"a": 1}}}, "extra_args"),
    ({"sampling_params": {"structured_outputs": {"regex": "a"}}}, "structured_outputs"),
    ({"sampling_params": {"max_tokens": "x"}}, "sampling_params.max_tokens"), ({"token_ids": "abc"}, "token_ids"),
    ({"kv_transfer_params": {"a": 1}}, "kv_transfer_params"),
])  # fmt: skip
def test_faults_name_themselves(tiny, change, param):
    status, answer = generate(tiny, **change)
    assert status == 400 and answer["error"]["param"] == param


@pytest.mark.parametrize("path", ["/abort_requests", "/inference/v1/abort_requests"])
@pytest.mark.parametrize("prefix", ["", "cmpl-"])
def test_a_call_can_be_aborted_by_its_id(serve, path, prefix):
    with serve({"step_seconds": 0.02}) as running, httpx.Client(base_url=running.url) as client:
        body = {"prompt": "Hello", "max_tokens": 400, "stream": True, "request_id": "mine"}
        with client.stream("POST", "/v1/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            other = httpx.post(
                running.url + path, json={"request_ids": [prefix + "mine"]}, headers={"x-turret-tenant": "other"}
            )
            assert other.status_code == 200, "an id of somebody else's is no fault, and nothing happens"
            next(lines)
            assert httpx.post(running.url + path, json={"request_ids": ["gone", prefix + "mine"]}).content == b""
            rest = [line for line in lines if line]
        last = json.loads(rest[-2].removeprefix("data: "))
        assert last["choices"][0]["finish_reason"] == "abort" and rest[-1] == "data: [DONE]"
        assert len(rest) < 300


def test_an_aborted_beam_search_ends_with_what_it_found(serve):
    with serve({"step_seconds": 0.02}) as running:
        body = {"prompt": "Hello", "max_tokens": 400, "use_beam_search": True, "n": 2, "request_id": "mine"}
        found = {}

        def call():
            found["answer"] = httpx.post(f"{running.url}/v1/completions", json=body, timeout=60).json()

        thread = threading.Thread(target=call)
        thread.start()
        while not running.in_loop(lambda: running.state.lifecycle.num_open):
            pass
        httpx.post(f"{running.url}/abort_requests", json={"request_ids": ["mine"]})
        thread.join(60)
        assert [c["finish_reason"] for c in found["answer"]["choices"]] == ["abort", "abort"]
        assert running.in_loop(lambda: running.state.parts.client.num_open) == 0


def test_routes_that_need_a_switch(serve, tiny):
    for method, path in (("GET", "/tokenizer_info"), ("GET", "/server_info"), ("POST", "/reset_prefix_cache")):
        assert httpx.request(method, tiny.url + path).status_code == 404
    with (
        serve(enable_tokenizer_info_endpoint=True, server_dev_mode=True, api_key=["hidden"]) as running,
        httpx.Client(base_url=running.url, headers={"authorization": "Bearer hidden"}) as client,
    ):
        info = client.get("/tokenizer_info").json()
        assert info["tokenizer_class"] == "FastTokenizer" and info["eos_token"] == "</s>"
        assert "messages" in info["chat_template"] and info["model_max_length"] == 512
        for form in ("text", "json"):
            shown = client.get("/server_info", params={"config_format": form})
            assert "hidden" not in shown.text and "server_dev_mode" in str(shown.json()["vllm_config"])
            assert "hf_token" in shown.text and shown.text.count("***") == 1, "a tokenizer's options are no secret"
            assert shown.json()["system_env"]["turret"]
        assert client.get("/server_info", params={"config_format": "xml"}).status_code == 400
        body = {"prompt": "x" * 64, "max_tokens": 1}
        for reset, hit in ((False, False), (False, True), (True, False)):
            if reset:
                answer = client.post("/reset_prefix_cache", params={"reset_running_requests": True})
                assert (answer.status_code, answer.content) == (200, b"")
            before = running.state.parts.client.stats.prefix_cache_hits_total
            client.post("/v1/completions", json=body)
            assert (running.state.parts.client.stats.prefix_cache_hits_total > before) == hit


def test_tokens_only(serve):
    with serve(tokens_only=True) as running:
        assert generate(running, sampling_params={"max_tokens": 2})[0] == 200
        for path in ("/v1/completions", "/v1/chat/completions", "/tokenize"):
            assert httpx.post(running.url + path, json={}).status_code == 404
        for path in ("/health", "/v1/models"):
            assert httpx.get(running.url + path).status_code == 200
