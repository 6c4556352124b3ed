"""Faults in requests: the status, the OpenAI error object, the field at fault, the true numbers."""

from __future__ import annotations

import json

import httpx
import pytest

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
JSON = {"content-type": "application/json"}
TEXT = {"prompt": "Hello", "max_tokens": 2}


def post(tiny, path, body):
    response = httpx.post(tiny.url + path, json=body)
    error = response.json().get("error")
    if error is not None:
        assert set(error) == {"message", "type", "param", "code"} and error["code"] == response.status_code
    return response.status_code, error


@pytest.mark.parametrize(
    ("path", "change", "status", "kind", "param", "words"),
    [
        ("chat/completions", {"messages": None}, 400, "Bad Request", "messages", "array"),
        ("chat/completions", {"messages": []}, 400, "BadRequestError", "messages", "at least one message"),
        ("chat/completions", {"messages": ["x"]}, 400, "Bad Request", "messages.0", "object"),
        ("chat/completions", {"messages": [{"content": "x"}]}, 400, "BadRequestError", "messages[0].role", "role"),
        ("chat/completions", {"model": "gpt-9"}, 404, "NotFoundError", "model", "'gpt-9' does not exist"),
        ("chat/completions", {"temperature": -0.1}, 400, "BadRequestError", "temperature", "-0.1"),
        ("chat/completions", {"temperature": "hot"}, 400, "Bad Request", "temperature", "float"),
        ("chat/completions", {"top_p": 0}, 400, "BadRequestError", "top_p", "(0, 1]"),
        ("chat/completions", {"top_k": -2}, 400, "BadRequestError", "top_k", "-2"),
        ("chat/completions", {"n": 0}, 400, "BadRequestError", "n", "between 1 and 16384"),
        ("chat/completions", {"n": 2, "temperature": 0}, 400, "BadRequestError", "n", "greedy"),
        ("chat/completions", {"max_tokens": 0}, 400, "BadRequestError", "max_tokens", "at least 1"),
        ("chat/completions", {"max_tokens": 600}, 400, "BadRequestError", "max_tokens", "490 of the model's 512"),
        ("chat/completions", {"max_completion_tokens": 600}, 400, "BadRequestError", "max_completion_tokens", "600"),
        ("chat/completions", {"stop": [""]}, 400, "BadRequestError", "stop", "empty string"),
        ("chat/completions", {"stop": 3}, 400, "Bad Request", "stop", "str"),
        ("chat/completions", {"logit_bias": {"a": 1}}, 400, "Bad Request", "logit_bias", "int"),
        ("chat/completions", {"logit_bias": {"9999": 1}}, 400, "BadRequestError", "logit_bias", "257 tokens"),
        ("chat/completions", {"allowed_token_ids": []}, 400, "BadRequestError", "allowed_token_ids", "not be empty"),
        ("chat/completions", {"top_logprobs": 2}, 400, "BadRequestError", "top_logprobs", "logprobs to be true"),
        ("chat/completions", {"logprobs": True, "top_logprobs": 21}, 400, "BadRequestError", "top_logprobs", "20"),
        ("chat/completions", {"stream_options": {}}, 400, "BadRequestError", "stream_options", "stream is true"),
        ("chat/completions", {"priority": 3}, 400, "BadRequestError", "priority", "--scheduling-policy priority"),
        ("chat/completions", {"cache_salt": ""}, 400, "BadRequestError", "cache_salt", "empty"),
        ("chat/completions", {"response_format": {"type": "json_object"}}, 400, "BadRequestError", "response_format",
         "no backend"),
        ("chat/completions", {"structured_outputs": {"regex": "a"}}, 400, "BadRequestError", "structured_outputs", ""),
        ("chat/completions", {"tool_choice": "auto"}, 400, "BadRequestError", "tool_choice", "tools is missing"),
        ("chat/completions", {"chat_template": "x"}, 400, "BadRequestError", "chat_template", "--trust-request"),
        ("chat/completions", {"prompt_logprobs": 1, "stream": True}, 400, "BadRequestError", "prompt_logprobs", ""),
        ("completions", {"prompt": None}, 400, "BadRequestError", "prompt", "missing"),
        ("completions", {"prompt": []}, 400, "BadRequestError", "prompt", "missing or empty"),
        ("completions", {"prompt": ""}, 400, "BadRequestError", "prompt", "empty"),
        ("completions", {"prompt": ["a", 1]}, 400, "BadRequestError", "prompt", "mixes"),
        ("completions", {"prompt": [1.5]}, 400, "Bad Request", "prompt.0", "int"),
        ("completions", {"prompt": [5000]}, 400, "BadRequestError", "prompt", "5000"),
        ("completions", {"prompt": "x" * 600}, 400, "BadRequestError", "prompt", "600"),
        ("completions", {"max_tokens": 508}, 400, "BadRequestError", "max_tokens", "507"),
        ("completions", {"logprobs": 21}, 400, "BadRequestError", "logprobs", "(20)"),
        ("completions", {"min_tokens": 3}, 400, "BadRequestError", "min_tokens", "at most max_tokens (2)"),
        ("completions", {"n": 9000, "prompt": ["a", "b"]}, 400, "BadRequestError", "n", "18000 choices"),
        ("completions", {"suffix": "x"}, 400, "BadRequestError", "suffix", "not available"),
        ("completions", {"use_beam_search": True, "stop": "x"}, 400, "BadRequestError", "stop", "use_beam_search"),
        ("completions", {"use_beam_search": True, "n": 300}, 400, "BadRequestError", "n", "256"),
        ("completions", {"use_beam_search": True, "length_penalty": 11}, 400, "BadRequestError", "length_penalty",
         "between -10 and 10"),
        ("completions", {"length_penalty": 2}, 400, "BadRequestError", "length_penalty", "use_beam_search"),
        ("completions", {"repetition_detection": {"max_pattern_size": 0}}, 400, "Bad Request", "repetition_detection",
         "between 1 and 512, got 0"),
        ("completions", {"repetition_detection": {"max_pattern_size": 4, "min_count": 1}}, 400, "Bad Request",
         "repetition_detection", "at least 2, got 1"),
        ("completions", {"logprob_token_ids": [1]}, 400, "BadRequestError", "logprob_token_ids", "needs logprobs"),
        ("completions", {"logprobs": 1, "logprob_token_ids": [999]}, 400, "BadRequestError", "logprob_token_ids",
         "[999]"),
        ("completions", {"logprobs": 1, "logprob_token_ids": [1] * 129}, 400, "BadRequestError", "logprob_token_ids",
         "129"),
        ("completions", {"stream_interval": 0}, 400, "BadRequestError", "stream_interval", "at least 1"),
        ("completions", {"vllm_xargs": {"a": 1}}, 400, "BadRequestError", "vllm_xargs", "extension"),
        ("completions", {"ec_transfer_params": {"a": 1}}, 400, "BadRequestError", "ec_transfer_params", "encoder"),
        ("completions", {"watermarking": True}, 400, "BadRequestError", "watermarking", "mark"),
        ("completions", {"routed_experts_prompt_start": 1}, 400, "BadRequestError", "routed_experts_prompt_start", ""),
        ("chat/completions", {"media_io_kwargs": {"a": 1}}, 400, "BadRequestError", "media_io_kwargs", "text only"),
        ("completions", {"thinking_token_budget": 5}, 400, "BadRequestError", "thinking_token_budget", "conversation"),
        ("completions", {"kv_transfer_params": {"a": 1}}, 400, "BadRequestError", "kv_transfer_params", "connector"),
        ("completions", {"prompt_embeds": "AAAA"}, 400, "BadRequestError", "prompt_embeds", "not available"),
        ("completions", {"cache_salt": "a" * 129}, 400, "BadRequestError", "cache_salt", "129"),
        ("completions", {"cache_salt": "a/b"}, 400, "BadRequestError", "cache_salt", "none of them"),
        ("completions", {"stop": ["x"] * 1025}, 400, "BadRequestError", "stop", "1025"),
        ("completions", {"stop": ["x" * 16385]}, 400, "BadRequestError", "stop", "16385"),
        ("completions", {"bad_words": ["x"] * 1025}, 400, "BadRequestError", "bad_words", "1025"),
        ("completions", {"truncate_prompt_tokens": 5, "truncation_side": "middle"}, 400, "Bad Request",
         "truncation_side", "middle"),
        ("chat/completions", {"min_tokens": 500, "max_tokens": None}, 400, "BadRequestError", "min_tokens", "490"),
        ("chat/completions", {"reasoning_effort": "huge"}, 400, "Bad Request", "reasoning_effort", "huge"),
        ("chat/completions", {"mm_processor_kwargs": {"a": 1}}, 400, "BadRequestError", "mm_processor_kwargs", "text"),
        ("completions", {"truncate_prompt_tokens": -2}, 400, "BadRequestError", "truncate_prompt_tokens", "-2"),
    ],
)  # fmt: skip
def test_a_fault_names_itself(tiny, path, change, status, kind, param, words):
    body = {**(CHAT if "chat" in path else TEXT), **change}
    got, error = post(tiny, f"/v1/{path}", body)
    assert (got, error["type"], error["param"]) == (status, kind, param), error
    assert words in error["message"]


@pytest.mark.parametrize("extra", [
    {"best_of": 3}, {"guided_json": {}}, {"nonsense": 1}, {"user": "me"}, {"stop": None, "n": None, "seed": -1},
    {"response_format": {"type": "text"}}, {"logit_bias": {"5": 400}}, {"top_k": -1}, {"temperature": 1},
])  # fmt: skip
def test_what_clients_send_anyway_is_fine(tiny, extra):
    assert post(tiny, "/v1/chat/completions", {**CHAT, **extra})[0] == 200


@pytest.mark.parametrize(
    ("content", "media", "words"),
    [
        (b'{"prompt": "x"}', "text/plain", "application/json"),
        (b'{"prompt": "x"}', None, "application/json"),
        (b'{"prompt": ', "application/json", "not valid JSON"),
        (b'{"prompt": "\xff"}', "application/json; charset=utf-8", "JSON"),
        (b"[]", "application/json", "object"),
        (b"", "application/json", "JSON"),
    ],
)
def test_a_body_that_is_no_body(tiny, content, media, words):
    headers = {"content-type": media} if media else {}
    response = httpx.post(f"{tiny.url}/v1/completions", content=content, headers=headers)
    assert response.status_code == 400 and response.json()["error"]["type"] == "Bad Request"
    assert words in response.json()["error"]["message"]


def test_numbers_may_come_as_other_languages_write_them(tiny):
    """Without integers (16.0), or as text; what is no number still is none."""
    body = {"prompt": [5.0, 6], "max_tokens": 3.0, "n": "2", "temperature": "0.5", "stream": "false", "seed": 1e3}
    response = httpx.post(f"{tiny.url}/v1/completions", json=body)
    assert response.status_code == 200 and response.json()["usage"]["completion_tokens"] == 6
    for wrong in ({"n": 1.5}, {"n": "two"}, {"temperature": "nan"}, {"stream": "yes"}, {"prompt": [0.5]}):
        assert post(tiny, "/v1/completions", {**body, **wrong})[0] == 400


def test_a_body_beyond_all_measure_is_not_read(tiny):
    def pieces():
        yield b'{"prompt": "'
        for _ in range(130):
            yield b"x" * (1 << 20)

    response = httpx.post(f"{tiny.url}/v1/completions", content=pieces(), headers=JSON)
    assert response.status_code == 413 and "larger than" in response.json()["error"]["message"]


def test_a_parameter_after_the_media_type_is_fine(tiny):
    headers = {"content-type": "application/json; charset=utf-8"}
    body = b'{"prompt": "x", "max_tokens": 1}'
    assert httpx.post(f"{tiny.url}/v1/completions", content=body, headers=headers).status_code == 200


def test_unknown_routes_and_methods(tiny):
    for response, status, kind in (
        (httpx.get(f"{tiny.url}/v1/nothing"), 404, "Not Found"),
        (httpx.get(f"{tiny.url}/v1/completions"), 405, "Method Not Allowed"),
    ):
        assert response.status_code == status and response.json()["error"]["type"] == kind


def test_one_requests_failure_is_its_own(serve):
    with serve({"fault": "request", "fault_step": 1}) as running:
        status, error = post(running, "/v1/completions", TEXT)
        assert status == 500 and error["type"] == "InternalServerError" and "out of memory" in error["message"]
        assert post(running, "/v1/completions", TEXT)[0] == 200
        assert httpx.get(f"{running.url}/health").status_code == 200


def test_a_failure_after_the_stream_began_is_an_event(serve):
    with serve({"fault": "request", "fault_step": 3, "async_depth": 1}) as running:
        response = httpx.post(f"{running.url}/v1/completions", json={**TEXT, "max_tokens": 9, "stream": True})
        *events, failure, done = [e for e in response.text.split("\n\n") if e]
        assert response.status_code == 200 and len(events) == 2 and done == "data: [DONE]"
        assert '"error"' in failure and "out of memory" in failure


@pytest.mark.parametrize("fault", ["raise", "dead"])
def test_a_dead_engine_answers_everybody(serve, fault):
    with serve({"fault": fault, "fault_step": 5, "async_depth": 1}) as running:
        response = httpx.post(f"{running.url}/v1/completions", json={**TEXT, "max_tokens": 90, "stream": True})
        *_, failure, done = [e for e in response.text.split("\n\n") if e]
        assert '"error"' in failure and done == "data: [DONE]"
        status, error = post(running, "/v1/completions", TEXT)
        assert status == 503 and error["type"] == "InternalServerError"
        assert httpx.get(f"{running.url}/health").status_code == 503
        assert httpx.get(f"{running.url}/metrics").status_code == 200


NASTY = [
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308, "", "x", "\x00",
    "\ud800", "a" * 5000, [], [None], [0], [-1], [2**70], [[]], [""], ["x", 1], {}, {"type": None}, {"0": 1e9},
    {"-1": 1}, {"a": {"b": []}}, {"type": "text", "x": [1]},
]  # fmt: skip


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_no_value_of_any_field_breaks_the_server(serve, path):
    """Every field with every odd value is served or refused with a 4xx, and the next request works."""
    base = CHAT if "chat" in path else TEXT
    with serve(scheduling_policy="priority") as running, httpx.Client(base_url=running.url) as client:
        fields = client.get("/openapi.json").json()["components"]["schemas"][
            "ChatRequest" if "chat" in path else "CompletionRequest"
        ]["properties"]
        assert len(fields) > 40
        bad = []
        for field in fields:
            for value in NASTY:
                body = {**base, "stop": ["!"], field: value}
                if field in ("max_tokens", "max_completion_tokens") and value in (1, True):
                    continue
                # As ASCII, so that half a surrogate pair gets through the client.
                response = client.post(f"/v1/{path}", content=json.dumps(body), headers=JSON, timeout=20)
                status, failed = response.status_code, '"error"' in response.text
                if status not in (200, 400, 404) or (status == 200 and failed):
                    bad.append((field, value, status, response.text[:200]))
        assert bad == []
        assert client.post(f"/v1/{path}", json=base).status_code == 200
        assert client.get("/health").status_code == 200


def test_an_error_of_our_own_is_private(serve):
    with serve(parts={"model_root": object()}) as running:
        response = httpx.get(f"{running.url}/v1/models")
        assert response.status_code == 500 and response.json()["error"]["type"] == "InternalServerError"
        assert "object" not in response.text and httpx.get(f"{running.url}/health").status_code == 200
