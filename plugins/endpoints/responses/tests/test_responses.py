"""Bodies to chat completions, answers to responses; the official SDK reads what is streamed and what is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import openai
import pytest

from turret.contracts import (
    ChatAnswer,
    ChatFinish,
    ChatUsage,
    ContentDelta,
    EndpointCall,
    EndpointStream,
    ParserEvent,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from turret.errors import EngineError, RequestError
from turret.testing.endpoints import ScriptedAnswer, ScriptedHost
from turret_endpoint_responses.store import Store, Stored

Part = ParserEvent | ChatFinish
SCRIPT: tuple[Part, ...] = (
    ReasoningDelta("Let me "),
    ReasoningDelta("see."),
    ContentDelta("I look "),
    ContentDelta("it up."),
    ToolCallStart(0, "get_weather", "call_1"),
    ToolArgumentsDelta(0, '{"city": '),
    ToolArgumentsDelta(0, '"Łódź"}'),
    ToolCallEnd(0),
    ChatFinish("tool_calls"),
)
SAID: tuple[Part, ...] = (ContentDelta("Hello "), ContentDelta("there."), ChatFinish("stop"))
USAGE = ChatUsage(prompt=10, cached=4, output=6, reasoning=2)


def test_a_whole_response(new_bench: Any) -> None:
    response = new_bench(SCRIPT).sdk.responses.create(model="m", input="Hi", max_output_tokens=50)
    thought, message, call = response.output
    assert thought.type == "reasoning" and thought.content is not None and thought.content[0].text == "Let me see."
    assert message.type == "message" and response.output_text == "I look it up."
    assert call.type == "function_call" and (call.call_id, call.name) == ("call_1", "get_weather")
    assert json.loads(call.arguments) == {"city": "Łódź"}
    assert response.status == "completed" and response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (10, 6, 16)
    assert response.usage.output_tokens_details.reasoning_tokens == 2
    assert response.max_output_tokens == 50


def test_the_stream_builds_the_same_response(new_bench: Any) -> None:
    bench = new_bench(SCRIPT)
    whole = bench.sdk.responses.create(model="m", input="Hi")
    with bench.sdk.responses.stream(model="m", input="Hi") as stream:
        events = list(stream)
        built = stream.get_final_response()
    # The SDK's stream adds what it parsed; what was sent is compared.
    extra = {"id", "parsed_arguments", "parsed"}
    for one, other in zip(built.output, whole.output, strict=True):
        left, right = one.model_dump(exclude=extra), other.model_dump(exclude=extra)
        for part in left.get("content") or ():
            part.pop("parsed", None)
        assert left == right
    numbers = [event.sequence_number for event in events]
    assert sorted(set(numbers)) == list(range(numbers[-1] + 1))


def test_the_order_of_events(new_bench: Any) -> None:
    with new_bench(SCRIPT).sdk.responses.create(model="m", input="Hi", stream=True) as stream:
        names = [event.type.removeprefix("response.") for event in stream]
    assert names == [
        "created", "in_progress",
        "output_item.added", "reasoning_part.added", "reasoning_text.delta", "reasoning_text.delta",
        "reasoning_text.done", "reasoning_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done", "completed",
    ]  # fmt: skip


def test_cut_off_by_the_limit(new_bench: Any) -> None:
    response = new_bench([ContentDelta("x"), ChatFinish("length")]).sdk.responses.create(model="m", input="Hi")
    assert response.status == "incomplete" and response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens" and response.output[0].status == "incomplete"


def test_going_on_from_a_response(new_bench: Any) -> None:
    bench = new_bench(SCRIPT)
    first = bench.sdk.responses.create(model="m", input="Weather?", instructions="Be brief.")
    result = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
    bench.sdk.responses.create(model="m", previous_response_id=first.id, input=[result])  # type: ignore[list-item]
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Łódź"}'}}
    assert bench.host.bodies[1]["messages"] == [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "I look it up.", "reasoning": "Let me see.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]


def test_kept_forgotten_and_whose_it_is(new_bench: Any) -> None:
    bench = new_bench()
    kept = bench.sdk.responses.create(model="m", input="Hi")
    assert bench.sdk.responses.retrieve(kept.id).output_text == "Hello there."
    loose = bench.sdk.responses.create(model="m", input="Hi", store=False)
    with pytest.raises(openai.NotFoundError):
        bench.sdk.responses.retrieve(loose.id)
    bench.tenant = "b"
    with pytest.raises(openai.NotFoundError):
        bench.sdk.responses.retrieve(kept.id)
    with pytest.raises(openai.NotFoundError):
        bench.sdk.responses.create(model="m", input="x", previous_response_id=kept.id)
    bench.tenant = "a"
    bench.sdk.responses.delete(kept.id)
    with pytest.raises(openai.NotFoundError):
        bench.sdk.responses.retrieve(kept.id)


def test_a_kept_stream_is_told_again(new_bench: Any) -> None:
    bench = new_bench()
    with bench.sdk.responses.create(model="m", input="Hi", stream=True) as stream:
        first = list(stream)
    name = first[0].response.id  # type: ignore[union-attr]
    with bench.sdk.responses.retrieve(name, stream=True) as stream:
        assert [event.type for event in stream] == [event.type for event in first]
    with bench.sdk.responses.retrieve(name, stream=True, starting_after=3) as stream:
        assert next(iter(stream)).sequence_number == 4


class SlowHost(ScriptedHost):
    """Its answer waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.go = asyncio.Event()

    async def chat(self, call: EndpointCall, body: Mapping[str, Any]) -> ChatAnswer:
        outer = self

        class Slow(ScriptedAnswer):
            async def parts(self) -> AsyncGenerator[Part, None]:
                try:
                    yield ContentDelta("Hello")
                    await outer.go.wait()
                    yield ChatFinish("stop")
                finally:
                    outer.closed = True

        return Slow(SAID, USAGE)


def test_in_the_background(new_bench: Any) -> None:
    host = SlowHost()
    bench = new_bench(host=host)
    name = bench.sdk.responses.create(model="m", input="Hi", background=True).id
    bench.loop.run_until_complete(asyncio.sleep(0))
    assert bench.sdk.responses.retrieve(name).status == "in_progress"
    host.go.set()
    bench.loop.run_until_complete(asyncio.wait_for(_until(lambda: host.closed), 5))
    done = bench.sdk.responses.retrieve(name)
    assert done.status == "completed" and done.output_text == "Hello"
    with pytest.raises(openai.BadRequestError, match="background"):
        bench.sdk.responses.cancel(name)


def test_cancelling(new_bench: Any) -> None:
    host = SlowHost()
    bench = new_bench(host=host)
    name = bench.sdk.responses.create(model="m", input="Hi", background=True).id
    bench.loop.run_until_complete(asyncio.sleep(0))
    assert bench.sdk.responses.cancel(name).status == "cancelled" and host.closed
    assert bench.sdk.responses.retrieve(name).status == "cancelled"


def test_a_stream_of_work_in_the_background_is_followed(new_bench: Any) -> None:
    """It goes on without whoever began it; others take the stream up where they want."""
    host = SlowHost()
    bench = new_bench(host=host)

    async def run() -> None:
        asked = {"model": "m", "input": "Hi", "background": True, "stream": True}
        create = next(route for route in bench.routes if route.method == "POST" and route.path == "/v1/responses")
        begun = await create.handler(EndpointCall(asked, {}, {}, {}, "a"))
        assert isinstance(begun, EndpointStream)
        first = await anext(begun.events)
        await begun.events.aclose()
        name = json.loads(first.split(b"data: ")[1])["response"]["id"]
        retrieve = next(route for route in bench.routes if route.method == "GET" and route.path.endswith("_id}"))
        query = {"stream": "true", "starting_after": "2"}
        again = await retrieve.handler(EndpointCall(None, query, {"response_id": name}, {}, "a"))
        assert isinstance(again, EndpointStream)
        told = [await anext(again.events), await anext(again.events)]
        host.go.set()
        told += [event async for event in again.events]
        numbers = [json.loads(event.split(b"data: ")[1])["sequence_number"] for event in told]
        assert numbers == list(range(3, 3 + len(told))) and b"response.completed" in told[-1]

    bench.loop.run_until_complete(asyncio.wait_for(run(), 10))


def test_work_that_fails_in_the_background_says_so(new_bench: Any) -> None:
    class Failing(ScriptedHost):
        async def chat(self, call: EndpointCall, body: Mapping[str, Any]) -> ChatAnswer:
            class Broken(ScriptedAnswer):
                async def parts(self) -> AsyncGenerator[Part, None]:
                    yield ContentDelta("Hel")
                    raise EngineError("it broke")

            return Broken(SAID, USAGE)

    bench = new_bench(host=Failing())
    with bench.sdk.responses.create(model="m", input="Hi", background=True, stream=True) as stream:
        *_, last = stream
    assert last.type == "response.failed" and last.response.error is not None
    assert last.response.error.message == "it broke" and last.response.output[0].status == "incomplete"
    assert bench.sdk.responses.retrieve(last.response.id).status == "failed"


async def _until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_the_store_is_bounded() -> None:
    store = Store(2, 10_000)
    for name in "abc":
        store.put(Stored("t", {"id": name}))
    with pytest.raises(RequestError):
        store.get("a", "t")
    assert store.get("b", "t") and store.get("c", "t")
    store.put(Stored("t", {"id": "d", "text": "x" * 9_990}))
    with pytest.raises(RequestError):
        store.get("c", "t")


def test_fields(translated: Any) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
    made = translated(
        instructions="Be brief.", max_output_tokens=9, temperature=0.5, top_k=3, tools=[tool], truncation="auto",
        tool_choice={"type": "function", "name": "f"}, parallel_tool_calls=False, reasoning={"effort": "low"},
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    )  # fmt: skip
    assert made["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert (made["max_completion_tokens"], made["temperature"], made["top_k"]) == (9, 0.5, 3)
    assert made["tools"][0]["function"] == {"name": "f", "parameters": {"type": "object"}, "strict": True}
    assert made["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert made["parallel_tool_calls"] is False and made["truncate_prompt_tokens"] == -1
    assert made["reasoning_effort"] == "low" and made["response_format"]["json_schema"]["name"] == "n"


def test_items(translated: Any) -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    answer = {"type": "message", "role": "assistant", "content": "c"}
    made = translated(input=[{"role": "user", "content": parts}, answer])
    assert made["messages"] == [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}]
    assert made["continue_final_message"] is True


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "text only"),
        ({"input": [{"type": "web_search_call"}]}, "web_search_call"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "wizard"),
        ({"tools": [{"type": "web_search"}]}, "OpenAI runs"),
        ({"tools": [{"type": "file_search"}, {"type": "function", "name": "f"}]}, "OpenAI runs"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [5]}]}, "tools.0.tools.0"),
        ({"tools": [{"type": "function"}]}, "name"),
        ({"tool_choice": {"type": "mcp"}, "tools": [{"type": "function", "name": "f"}]}, "allowed_tools"),
        ({"conversation": "c"}, "previous_response_id"),
        ({"prompt": {"id": "p"}}, "stored prompts"),
        ({"background": True, "store": False}, "store"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"input": 5}, "input"),
    ],
)
def test_what_cannot_be_is_refused(new_bench: Any, body: dict[str, Any], word: str) -> None:
    bench = new_bench()
    with pytest.raises(openai.BadRequestError, match=word):
        bench.sdk.post("/responses", cast_to=object, body={"model": "m", "input": "Hi", **body})
    assert not bench.host.bodies


def test_what_developers_say_first_is_one_message(translated: Any) -> None:
    developer = [{"role": "developer", "content": "b"}, {"role": "developer", "content": "c"}]
    made = translated(instructions="a", input=[*developer, {"role": "user", "content": "d"}])
    assert made["messages"] == [{"role": "system", "content": "a\n\nb\n\nc"}, {"role": "user", "content": "d"}]


def test_what_was_asked_is_kept_in_pages(new_bench: Any) -> None:
    bench = new_bench()
    parts = [{"type": "input_text", "text": "a"}]
    turns = (("user", parts), ("assistant", "b"), ("user", "c"))
    asked = [{"role": role, "content": content} for role, content in turns]
    kept = bench.sdk.responses.create(model="m", input=asked)  # type: ignore[arg-type]
    page = bench.sdk.responses.input_items.list(kept.id, limit=2)
    assert page.has_more and [item.content[0].text for item in page] == ["c", "b", "a"]  # type: ignore[union-attr]
    first = next(iter(bench.sdk.responses.input_items.list(kept.id, order="asc")))
    assert first.type == "message" and first.id
    for wrong in ({"limit": 0}, {"limit": 101}, {"after": "x"}, {"order": "up"}):
        with pytest.raises(openai.BadRequestError, match=next(iter(wrong))):
            bench.sdk.responses.input_items.list(kept.id, **wrong)  # type: ignore[arg-type]
    said = bench.sdk.responses.create(model="m", input="Hi")
    (one,) = bench.sdk.responses.input_items.list(said.id).data
    assert (one.role, one.content[0].text) == ("user", "Hi")  # type: ignore[union-attr]
