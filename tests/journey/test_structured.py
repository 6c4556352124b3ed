"""Answers held to a form: offline alone and in company, and over HTTP, where hostile forms are one client's trouble."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator

import httpx
import openai
import pytest

from turret import LLM, SamplingParams, StructuredOutputsParams
from turret.errors import RequestError

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
OPEN = {**PERSON, "additionalProperties": {"type": "boolean"}}
"""Not for xgrammar: `auto` asks the other backend."""
PROMPT = "About a person, as JSON: "
FORMS = [
    {"json": PERSON},
    {"json": OPEN},
    {"regex": "[0-9]{3}-[a-f]{2,5}"},
    {"choice": ["yes", "no", "perhaps"]},
    {"json_object": True},
    {"grammar": 'root ::= "<" [a-z]+ ">"'},
    None,
]


def params(form: dict | None, **changes) -> SamplingParams:
    wanted = None if form is None else StructuredOutputsParams(**form)
    return SamplingParams(**{"max_tokens": 48, "temperature": 0.8, "seed": 5, "structured_outputs": wanted, **changes})


def answers(llm: LLM, asked: list[SamplingParams]) -> list:
    return [made.outputs[0] for made in llm.generate([PROMPT] * len(asked), asked, use_tqdm=False)]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("demo", max_model_len=512, kv_cache_memory_bytes=128 << 20, max_num_seqs=16) as made:
        yield made


@pytest.mark.model
def test_answers_have_the_form_and_the_same_bits_in_company(llm: LLM) -> None:
    asked = [params(form, logprobs=2) for form in FORMS]
    alone = [answers(llm, [one])[0] for one in asked]
    person, other, code, word, _, tagged, _ = (one.text for one in alone)
    assert set(json.loads(person)) == {"name", "age"} and set(json.loads(other)) >= {"name", "age"}
    assert re.fullmatch("[0-9]{3}-[a-f]{2,5}", code) and word in ("yes", "no", "perhaps")
    assert re.fullmatch("<[a-z]+>?", tagged)
    together = answers(llm, asked * 2)
    for one, again in zip([*alone, *alone], together, strict=True):
        assert (one.token_ids, one.logprobs, one.finish_reason) == (
            again.token_ids,
            again.logprobs,
            again.finish_reason,
        )


@pytest.mark.model
def test_preempted_answers_go_on_in_their_form(llm: LLM) -> None:
    asked = [params({"json": PERSON}, seed=seed, max_tokens=40) for seed in range(6)]
    with LLM("demo", num_gpu_blocks_override=12, max_model_len=128, max_num_seqs=6) as small:
        found = [[one.token_ids for one in answers(model, asked)] for model in (small, llm)]
        preempted = next(m.value for m in small.get_metrics() if m.name == "turret:preemptions_total")
    assert found[0] == found[1] and preempted


@pytest.mark.model
def test_lengths_stops_and_the_end(llm: LLM) -> None:
    [cut] = answers(llm, [params({"json": PERSON}, max_tokens=5)])
    assert cut.finish_reason == "length"
    [longer] = answers(llm, [params({"regex": "[ab]{4}"}, min_tokens=30)])
    assert re.fullmatch("[ab]{4}", longer.text) and longer.finish_reason == "stop"
    [on] = answers(llm, [params({"regex": "[ab]{4}"}, ignore_eos=True, max_tokens=12)])
    assert re.fullmatch("[ab]{4}", on.text) and len(on.token_ids) == 12, "only the end follows the end"
    [stopped] = answers(llm, [params({"regex": "[0-9]{8}"}, stop=["3", "1", "2", "0"])])
    assert stopped.finish_reason in ("stop", "length") and len(stopped.text) < 8
    several = llm.generate([PROMPT], params({"choice": ["a", "b"]}, n=4), use_tqdm=False)[0].outputs
    assert {one.text for one in several} <= {"a", "b"} and len(several) == 4


@pytest.mark.model
def test_what_cannot_be_followed_is_told_before_anything_runs(llm: LLM) -> None:
    for form, word in (
        ({"regex": "(a"}, "regular expression"),
        ({"json": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"grammar": "root ::= missing"}, "missing"),
        ({"json": {"$ref": "#"}}, "itself"),
    ):
        with pytest.raises(RequestError, match=word):
            answers(llm, [params(form)])
    [fine] = answers(llm, [params({"choice": ["yes"]})])
    assert fine.text == "yes"


@pytest.mark.model
def test_forms_over_http(demo: str) -> None:
    client = openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0)
    ask = {"model": "demo", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 60, "temperature": 0}
    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    whole = client.chat.completions.create(**ask, response_format=schema).choices[0]
    assert set(json.loads(whole.message.content)) == {"name", "age"} and whole.finish_reason == "stop"
    stream = client.chat.completions.create(**ask, response_format=schema, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == whole.message.content
    text = (
        client.completions.create(
            model="demo", prompt="Year: ", extra_body={"structured_outputs": {"regex": "(19|20)[0-9]{2}"}}
        )
        .choices[0]
        .text
    )
    assert re.fullmatch("(19|20)[0-9]{2}", text)
    made = client.responses.create(
        model="demo",
        input=PROMPT,
        max_output_tokens=60,
        text={"format": {"type": "json_schema", "name": "person", "schema": PERSON}},
    )
    assert set(json.loads(made.output_text)) == {"name", "age"}


@pytest.mark.model
def test_forced_calls_over_http(demo: str) -> None:
    client = openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0)
    tools = [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": {"zone": {"enum": ["utc", "cet"]}},
                    "required": ["zone"],
                },
            },
        }
        for name in ("clock", "sun")
    ]
    ask = {
        "model": "demo",
        "messages": [{"role": "user", "content": "What time is it?"}],
        "tools": tools,
        "temperature": 0,
        "max_tokens": 80,
        "parallel_tool_calls": False,
    }
    whole = client.chat.completions.create(**ask, tool_choice="required").choices[0]
    [call] = whole.message.tool_calls
    assert whole.finish_reason == "tool_calls" and call.function.name in ("clock", "sun")
    assert json.loads(call.function.arguments)["zone"] in ("utc", "cet")
    named = {"type": "function", "function": {"name": "sun"}}
    deltas = [
        chunk.choices[0].delta.tool_calls[0]
        for chunk in client.chat.completions.create(**ask, tool_choice=named, stream=True)
        if chunk.choices and chunk.choices[0].delta.tool_calls
    ]
    assert deltas[0].function.name == "sun"
    assert json.loads("".join(delta.function.arguments or "" for delta in deltas))["zone"] in ("utc", "cet")


NESTED: dict = {"type": "string", "maxLength": 200}
for _ in range(6):
    NESTED = {"type": "array", "minItems": 4000, "items": NESTED}
HOSTILE = [
    {"regex": "(a"},
    {"regex": "(((((a{1,4000}){1,4000}){1,4000}){1,4000}){1,4000}){1,4000}"},
    {"regex": "a", "choice": ["b"]},
    {"foo": 1},
    {},
    {"json": "{"},
    {"json": {"$ref": "#"}},
    {"json": "[" * 100_000},
    {"json": NESTED},
    {"choice": []},
    {"json": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}},
    {"json": {"type": "array", "minItems": 10**12}},
    {"grammar": "root ::= " + "(" * 50_000},
    {"grammar": "start: nowhere"},
    {"grammar": 'root ::= x\nx ::= x x x x | x x | "a" | ""'},
    {"structural_tag": {"type": "nonsense", "format": {"type": "x"}}},
    {
        "json": {
            "type": "object",
            "properties": {f"p{i}": {"enum": [f"{i}-{j}" for j in range(300)]} for i in range(40)},
        }
    },
]


@pytest.mark.model
def test_hostile_forms_are_their_client_s_trouble(demo: str) -> None:
    done = threading.Event()
    waits: list[float] = []

    def others() -> None:
        while not done.is_set():
            began = time.monotonic()
            body = {"model": "demo", "prompt": "Hi", "max_tokens": 2}
            assert httpx.post(f"{demo}/v1/completions", json=body, timeout=60).status_code == 200
            waits.append(time.monotonic() - began)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for form in HOSTILE:
            began = time.monotonic()
            body = {"model": "demo", "prompt": "x", "max_tokens": 4, "structured_outputs": form}
            answer = httpx.post(f"{demo}/v1/completions", json=body, timeout=120)
            assert answer.status_code in (200, 400), answer.text
            assert time.monotonic() - began < 90
            if answer.status_code == 400:
                error = answer.json()["error"]
                assert error["param"].startswith("structured_outputs") and "\n" not in error["message"]
    finally:
        done.set()
        thread.join()
    assert waits and max(waits) < 30, "others are served meanwhile"
