"""Hostile bodies: refused with a 4xx and a sentence, never a 5xx, and the next request works."""

from __future__ import annotations

import json
import random
import threading

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

JSON = {"content-type": "application/json"}
MESSAGES = '"messages":[{"role":"user","content":"hi"}]'


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + "1" + closing * depth


def post(running, path: str, body: str | bytes) -> httpx.Response:
    return httpx.post(running.url + path, content=body, headers=JSON, timeout=60)


def refused(running, path: str, body: str | bytes, words: str = "") -> None:
    response = post(running, path, body)
    assert response.status_code == 400, response.text[:300]
    assert words in response.json()["error"]["message"]


PLACES = [
    ("/v1/completions", "{}"), ("/v1/completions", '{{"prompt":{}}}'),
    ("/v1/completions", '{{"prompt":"x","response_format":{{"a":{}}}}}'),
    ("/v1/chat/completions", '{{"messages":[{{"role":"user","content":{}}}]}}'),
    ("/v1/chat/completions", '{{"messages":[{{"role":"user","content":"x","q":{}}}]}}'),
    ("/v1/chat/completions", '{{"messages":[{{"role":"assistant","tool_calls":{}}}]}}'),
    ("/v1/chat/completions", "{{" + MESSAGES.replace("{", "{{").replace("}", "}}")
     + ',"tool_choice":"none","tools":[{{"type":"function","function":{{"name":"x","parameters":{}}}}}]}}'),
    ("/v1/chat/completions", "{{" + MESSAGES.replace("{", "{{").replace("}", "}}")
     + ',"chat_template_kwargs":{{"x":{}}}}}'),
    ("/tokenize", '{{"messages":[{{"role":"user","content":{}}}]}}'),
    ("/inference/v1/generate", '{{"token_ids":[1],"features":{{"a":{}}}}}'),
]  # fmt: skip


@pytest.mark.parametrize(("path", "place"), PLACES)
@pytest.mark.parametrize("depth", [150, 900, 100_000])
@pytest.mark.parametrize(("opening", "closing"), ["[]", ('{"a":', "}")])
def test_depth_is_refused_wherever_it_is(tiny, path, place, depth, opening, closing):
    refused(tiny, path, place.format(nested(depth, opening, closing)))


def test_depth_in_fields_that_nobody_knows_is_no_harm(tiny):
    """What is unknown is skipped, not built; beyond all depth even that is refused."""
    assert post(tiny, "/v1/completions", '{"prompt":"x","zzz":' + nested(150) + "}").status_code == 200
    refused(tiny, "/v1/completions", '{"prompt":"x","zzz":' + nested(100_000) + "}", "deep")


def test_tool_schemas_of_an_honest_depth_pass(tiny):
    tool = {"type": "function", "function": {"name": "x", "parameters": json.loads(nested(40, '{"a":', "}"))}}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [tool], "tool_choice": "none", "max_tokens": 1}
    assert post(tiny, "/v1/chat/completions", json.dumps(body)).status_code == 200


def test_arguments_of_a_call_beyond_all_depth_are_text(tiny):
    call = {"function": {"name": "f", "arguments": nested(100_000)}}
    body = {"messages": [{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "x"}]}
    assert post(tiny, "/v1/chat/completions", json.dumps({**body, "max_tokens": 1})).status_code == 200


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 5000, "0x10", "1_000"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "seed", "max_tokens", "n", "length_penalty"])
def test_numbers_that_are_none(tiny, field, number):
    refused(tiny, "/v1/completions", f'{{"prompt":"x","{field}":{number}}}')
    refused(tiny, "/v1/completions", f'{{"prompt":"x","logit_bias":{{"1":{number}}}}}') if number[0] in "NIe" else None


@pytest.mark.parametrize("content", [
    b'{"prompt":"\xff\xfe"}', b'{"prompt":"\xed\xa0\x80"}', b'{"prompt":"\\ud800"}', b'{"prompt":"\\udc00\\ud800"}',
    b'\xff\xfe{\x00}\x00', b'{"prompt":"x","stop":"\\ud800"}', b'{"prompt":"x","prompt":}', b'{"prompt":"x"} trailing',
    b'{"prompt":"x",}', b"null", b'"x"', b"1", b"true", b"", b"{" * 100_000, b'{"prompt":' + b"[" * 100_000,
    b'{"messages":[{"role":"user","content":"\xc3\x28"}]}',
])  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
def test_bytes_that_are_no_text_and_text_that_is_no_json(tiny, path, content):
    refused(tiny, path, content)


MESSAGE_FAULTS = [
    {"role": "user", "content": [{"type": "text"}]}, {"role": "user", "content": [{"type": "text", "text": None}]},
    {"role": "user", "content": [{"type": "text", "text": 3}]}, {"role": "user", "content": [None]},
    {"role": "user", "content": {"a": 1}}, {"role": "user", "content": 3}, {"role": None}, {}, {"role": 3},
    {"role": "assistant", "tool_calls": 3}, {"role": "assistant", "tool_calls": "abc"},
    {"role": "assistant", "tool_calls": [3]}, {"role": "assistant", "tool_calls": [{"function": 3}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGE_FAULTS)
@pytest.mark.parametrize("extra", [
    {}, {"echo": True}, {"add_generation_prompt": False},
    {"continue_final_message": True, "add_generation_prompt": False, "echo": True},
])  # fmt: skip
def test_messages_that_are_none(tiny, message, extra):
    refused(tiny, "/v1/chat/completions", json.dumps({"messages": [message], "max_tokens": 1, **extra}), "messages[0]")


TEMPLATES = [
    "{% for i in range(10**9) %}{% endfor %}", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    "{% endfor %}", "{{ 'a' * 10**9 }}", "{{ messages * 10**8 }}", "{{ raise_exception('no') }}", "{{ 1 / 0 }}",
    "{{ ''.__class__.__mro__ }}", "{{ messages.__class__.__base__.__subclasses__() }}", "{% include '/etc/passwd' %}",
    "{{ self._TemplateReference__context }}", "{{ cycler.__init__.__globals__ }}", "{{ messages[0].x.y }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ '%1000000000d' % 1 }}", "{{", "{% if %}", "(" * 5000,
    "{{ " + "(" * 500 + ")" * 500 + " }}", "{{ lipsum(10**6) }}", "{{ ''.format.__globals__ }}",
    "{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
]  # fmt: skip


def test_templates_that_attack(serve):
    """Endless, huge, curious and broken templates: each is refused in seconds, and the server goes on."""
    with serve(trust_request_chat_template=True) as running:
        for template in TEMPLATES:
            body = {"messages": [{"role": "user", "content": "hi"}], "chat_template": template, "max_tokens": 1}
            for path in ("/v1/chat/completions", "/tokenize"):
                response = post(running, path, json.dumps(body))
                harmless = template.startswith("(")  # no tag in it: it is its own text, and that does not fit
                assert response.status_code == 400 or (harmless and path == "/tokenize"), (template, response.text)
                assert "root:" not in response.text and "/etc" not in response.text.replace(template, "")
        assert post(running, "/v1/completions", '{"prompt":"x","max_tokens":1}').status_code == 200


def test_a_slow_template_holds_up_nobody(serve):
    """While a template spends its two seconds, another client's request is answered."""
    slow = {"chat_template": "{% for i in range(3000) %}{% for j in range(3000) %}{% endfor %}{% endfor %}",
            "messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
    with serve(trust_request_chat_template=True) as running:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(post(running, "/tokenize", json.dumps(slow))))
        thread.start()
        served = 0
        while thread.is_alive():
            served += post(running, "/v1/completions", '{"prompt":"x","max_tokens":1}').status_code == 200
        assert answers[0].status_code == 400 and served >= 5


def test_text_of_messages_is_never_a_template(tiny):
    attack = "{{ 7 * 7 }}{% for i in range(3) %}x{% endfor %}"
    body = {"messages": [{"role": "user", "content": attack}], "return_prompt_text": True, "max_tokens": 1}
    prompt = post(tiny, "/v1/chat/completions", json.dumps(body)).json()["prompt_text"]
    assert prompt == f"<user>{attack}<assistant>"


def test_huge_bodies(tiny):
    refused(tiny, "/v1/completions", json.dumps({"prompt": "x" * 5_000_000}), "5000000 characters")
    refused(tiny, "/v1/completions", json.dumps({"prompt": [1] * 1_000_000}), "1000000")
    refused(tiny, "/v1/completions", json.dumps({"prompt": ["x"] * 20_000}), "20000 choices")
    refused(tiny, "/v1/completions", json.dumps({"prompt": "x", "stop": ["ab"] * 100_000}), "100000")
    refused(tiny, "/v1/completions", json.dumps({"prompt": "x", "bad_words": ["ab"] * 100_000}), "100000")
    refused(tiny, "/v1/completions", json.dumps({"prompt": "x", "stop_token_ids": [10**6] * 100_000}), "257")
    refused(tiny, "/v1/completions", json.dumps({"prompt": "x", "n": 10**9}), "16384")
    refused(tiny, "/v1/completions", json.dumps({"prompt": "x", "logit_bias": {str(i): 1 for i in range(9999)}}), "257")
    many = [{"role": "user", "content": "hello there"}] * 100_000
    refused(tiny, "/v1/chat/completions", json.dumps({"messages": many}), "context")
    assert post(tiny, "/detokenize", json.dumps({"tokens": [1] * 500_000})).status_code == 200
    assert post(tiny, "/tokenize", json.dumps({"prompt": "x" * 500_000})).json()["count"] == 500_000


def test_headers_that_are_no_text(tiny):
    for headers in ({"x-request-id": b"\xff\xfe"}, {"x-request-id": b"a" * 3000}, {"authorization": b"\xff"},
                    {"x-turret-tenant": b"\xff\xfe"}):  # fmt: skip
        response = httpx.post(f"{tiny.url}/v1/completions", json={"prompt": "x", "max_tokens": 1}, headers=headers)
        assert response.status_code == 200


def likely(*values):
    """Mostly one of `values`, sometimes anything at all."""
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    )
    return st.one_of(*[st.sampled_from(values)] * 6, anything)


FIELDS = {
    "max_tokens": likely(1, 3, 12, None), "n": likely(1, 2, 5), "temperature": likely(0, 0.5, 1, 2),
    "top_p": likely(0.1, 1), "top_k": likely(-1, 0, 1, 50), "min_p": likely(0, 0.5), "seed": likely(0, 7, -1, None),
    "frequency_penalty": likely(-2, 0.3), "presence_penalty": likely(2, 0), "repetition_penalty": likely(0.5, 1.1),
    "stop": likely("a", ["a", "bc"], [], "!"), "stop_token_ids": likely([1], [], [5, 6]),
    "include_stop_str_in_output": likely(True, False), "ignore_eos": likely(True), "min_tokens": likely(0, 1, 3),
    "logit_bias": likely({"5": 3}, {"7": -100}, {}), "allowed_token_ids": likely([1, 2, 3], None),
    "bad_words": likely(["a"], ["ab c"]), "prompt_logprobs": likely(0, 1, None), "logprobs": likely(0, 1, True, None),
    "skip_special_tokens": likely(True, False), "truncate_prompt_tokens": likely(1, 5, -1, None),
    "truncation_side": likely("left", "right"), "use_beam_search": likely(False, True), "length_penalty": likely(1.0),
    "repetition_detection": likely({"max_pattern_size": 4, "min_count": 2}, None), "stream_interval": likely(1, 3),
    "return_token_ids": likely(True), "return_tokens_as_token_ids": likely(True), "add_special_tokens": likely(True),
    "echo": likely(True, False), "cache_salt": likely("a", None), "stream": likely(True, False),
    "stream_options": likely({"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}, None),
    "logprob_token_ids": likely([1, 2], None), "user": likely("me"), "request_id": likely("r"), "model": likely("tiny"),
    "top_logprobs": likely(0, 2), "priority": likely(0), "response_format": likely({"type": "text"}),
    "messages": likely([{"role": "user", "content": "hi"}]), "prompt": likely("hi", [1, 2], ["a", "b"], [[1], [2]]),
    "add_generation_prompt": likely(True, False), "continue_final_message": likely(False, True),
    "documents": likely([{"title": "t", "text": "x"}]), "return_prompt_text": likely(True),
    "reasoning_effort": likely("low", "high"), "chat_template_kwargs": likely({"a": 1}),
}  # fmt: skip
REQUIRED = {
    "/v1/completions": {"prompt": "hi"}, "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
}  # fmt: skip


@settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from(sorted(REQUIRED)), few=st.sets(st.sampled_from(sorted(FIELDS)), max_size=8), data=st.data()
)
def test_any_fields_together(tiny, path, few, data):
    """Combinations of fields that are mostly right: served or refused, whole or streamed, and nothing is left over."""
    body = {**REQUIRED[path], "max_tokens": 4, **{name: data.draw(FIELDS[name], name) for name in few}}
    try:
        content = json.dumps(body).encode()
    except UnicodeEncodeError:
        return
    response = post(tiny, path, content)
    assert response.status_code in (200, 400, 404), (body, response.text)
    if response.status_code != 200:
        assert response.json()["error"]["message"]
    elif body.get("stream"):
        assert response.text.endswith("data: [DONE]\n\n") and '"error"' not in response.text, (body, response.text)


def test_nothing_is_left_of_all_that(tiny):
    assert tiny.in_loop(lambda: tiny.state.parts.client.num_open) == 0
    assert tiny.state.generator.queue.num_requests == 0
    assert httpx.get(f"{tiny.url}/health").status_code == 200


def test_cut_bodies(tiny):
    """Any beginning of a body is refused: nothing is guessed."""
    body = json.dumps({"messages": [{"role": "user", "content": "h\u00e9"}], "max_tokens": 1, "stop": ["a"]})
    source = random.Random(4)
    for end in source.sample(range(len(body)), 40):
        refused(tiny, "/v1/chat/completions", body[:end], "JSON")
