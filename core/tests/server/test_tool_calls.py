"""Tool calls through a real server: a parser that takes every run of digits for a call, and faulty ones."""

from __future__ import annotations

import contextlib
import json
import re

import httpx
import openai
import pytest

from turret.config import Config
from turret.contracts import ContentDelta, ToolArgumentsDelta, ToolCallEnd, ToolCallStart
from turret.errors import ConfigError
from turret.plugins.calls import guard
from turret.plugins.candidate import Candidate
from turret.server.parts import AnswerParsers

MESSAGES = [{"role": "user", "content": "Hello"}]
PROMPT = "[tools:dial]<user>Hello<assistant>"
TOOL = {"type": "function", "function": {"name": "dial", "parameters": {"type": "object", "properties": {}}}}
COUNT = 120


class Digits:
    """`12` is the call dial({"n": "12"}), streamed digit by digit; everything else is content."""

    api = "1.0"
    kind = "tool_parser"

    def __init__(self):
        self.contexts = []

    def open(self, ctx):
        self.contexts.append(ctx)
        return DigitSession()

    def grammar(self, tools):
        return None


class DigitSession:
    def __init__(self):
        self.index, self.inside = -1, False

    def feed(self, text, ids):
        events = []
        for letter in text:
            if letter.isdigit():
                if not self.inside:
                    self.inside, self.index = True, self.index + 1
                    events += [ToolCallStart(self.index, "dial"), ToolArgumentsDelta(self.index, '{"n": "')]
                events.append(ToolArgumentsDelta(self.index, letter))
            else:
                events += [*self.finish(), ContentDelta(letter)]
        return events

    def finish(self):
        if not self.inside:
            return []
        self.inside = False
        return [ToolArgumentsDelta(self.index, '"}'), ToolCallEnd(self.index)]


class Quiet(Digits):
    """Keeps the calls and swallows the rest."""

    def open(self, ctx):
        session = DigitSession()
        feed = session.feed
        session.feed = lambda text, ids: [e for e in feed(text, ids) if not isinstance(e, ContentDelta)]
        return session


class Faulty(Digits):
    """Answers the first digit with `fault`: something to raise, or events."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    def open(self, ctx):
        session, fault = DigitSession(), self.fault
        plain = session.feed

        def feed(text, ids):
            if not any(letter.isdigit() for letter in text):
                return plain(text, ids)
            if isinstance(fault, Exception):
                raise fault
            return fault

        session.feed = feed
        return session


@contextlib.contextmanager
def calling(serve, parser=None, **options):
    chosen = {"enable_auto_tool_choice": True, "tool_call_parser": "digits"}
    known = Candidate("tool_parser", "digits", "digits:Digits", "turret-digits", "1.0")
    with (
        serve(parts={"parsers": AnswerParsers(tools=guard(known, parser or Digits()))}, **chosen, **options) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield running, client


@pytest.fixture
def digits(serve):
    with calling(serve) as pair:
        yield pair


def ask(client, **body):
    body = {"model": "tiny", "messages": MESSAGES, "tools": [TOOL], "max_tokens": COUNT, **body}
    return client.chat.completions.create(**body)


def numbers(calls):
    return [json.loads(call["arguments"])["n"] for call in calls]


def gather(stream):
    """Choice 0 of a stream: content, calls and the finish reason; checks how calls are announced."""
    content, calls, reason = "", [], None
    for chunk in stream:
        choice = chunk.choices[0]
        assert reason is None
        content, reason = content + (choice.delta.content or ""), choice.finish_reason
        for part in choice.delta.tool_calls or ():
            if part.index == len(calls):
                assert part.type == "function" and part.id and part.function.arguments == ""
                calls.append({"id": part.id, "name": part.function.name, "arguments": ""})
            else:
                assert part.index == len(calls) - 1 and part.id is part.type is part.function.name is None
                calls[-1]["arguments"] += part.function.arguments
    return content, calls, reason


def parts(whole):
    return re.sub(r"\d+", "", whole), re.findall(r"\d+", whole)


def test_whole_answer(digits):
    running, client = digits
    content, expected = parts(running.answer(PROMPT, COUNT))
    assert len(expected) > 2
    for choice in (openai.omit, "auto"):
        answer = ask(client, tool_choice=choice).choices[0]
        found = answer.message.tool_calls
        assert answer.message.content == content and answer.finish_reason == "length"
        assert [json.loads(call.function.arguments) for call in found] == [{"n": n} for n in expected]
        assert {call.function.name for call in found} == {"dial"} and {call.type for call in found} == {"function"}
        assert all(re.fullmatch(r"chatcmpl-tool-[0-9a-f]{32}", call.id) for call in found)
        assert len({call.id for call in found}) == len(expected)


@pytest.mark.parametrize("interval", [1, 3, 50])
def test_streams_are_equal_whatever_their_interval(serve, interval):
    with calling(serve, stream_interval=interval) as (running, client):
        content, expected = parts(running.answer(PROMPT, COUNT))
        told, calls, reason = gather(ask(client, stream=True))
        assert (told, numbers(calls), reason) == (content, expected, "length")


def test_stopping_for_calls_is_a_reason(digits):
    running, client = digits
    whole = running.answer(PROMPT, COUNT)
    second = list(re.finditer(r"\d+", whole))[1]
    stop = whole[second.end() : second.end() + 3]
    expected = parts(whole[: whole.index(stop)])
    answer = ask(client, stop=[stop]).choices[0]
    assert answer.finish_reason == "tool_calls" and answer.stop_reason == stop
    told, calls, reason = gather(ask(client, stop=[stop], stream=True))
    assert (told, numbers(calls), reason) == (*expected, "tool_calls")
    # Without a call it is an ordinary stop, and content that holds nothing is still a string.
    none = ask(client, stop=[whole[0]]).choices[0]
    assert (none.message.content, none.message.tool_calls, none.finish_reason) == ("", None, "stop")


def test_content_that_holds_nothing_beside_calls_is_null(serve):
    with calling(serve, Quiet()) as (running, client):
        _, expected = parts(running.answer(PROMPT, COUNT))
        answer = ask(client).choices[0].message
        assert answer.content is None and len(answer.tool_calls) == len(expected)
        chunks = list(ask(client, stream=True))
    # Beside the role and the end, there is a chunk only where there is something to say.
    assert all(c.choices[0].delta.tool_calls for c in chunks[1:-1]) and chunks[-1].choices[0].finish_reason == "length"
    assert numbers(gather(chunks)[1]) == expected


def test_only_the_first_call_without_parallel_calls(digits):
    running, client = digits
    content, expected = parts(running.answer(PROMPT, COUNT))
    answer = ask(client, parallel_tool_calls=False).choices[0]
    (call,) = answer.message.tool_calls
    assert json.loads(call.function.arguments) == {"n": expected[0]} and answer.message.content == content
    told, calls, _ = gather(ask(client, parallel_tool_calls=False, stream=True))
    assert (told, numbers(calls)) == (content, expected[:1])


def test_every_choice_has_a_session(digits):
    _, client = digits
    one = ask(client).choices[0]
    for choice in ask(client, n=3).choices:
        assert choice.message.content == one.message.content
        assert [c.function for c in choice.message.tool_calls] == [c.function for c in one.message.tool_calls]


def test_logprobs_and_ids_come_for_swallowed_text_too(digits):
    running, client = digits
    whole = running.answer(PROMPT, COUNT)
    chunks = list(ask(client, stream=True, logprobs=True, extra_body={"return_token_ids": True}))
    tokens = [t.token for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    ids = [i for c in chunks for i in getattr(c.choices[0], "token_ids", None) or ()]
    assert "".join(tokens) == whole and running.text.tokenizer.decode(ids) == whole
    content, expected = parts(whole)
    told, calls, _ = gather(chunks)
    assert (told, numbers(calls)) == (content, expected)


def test_choice_none_and_no_tools_leave_text_alone(digits):
    running, client = digits
    none = ask(client, tool_choice="none").choices[0].message
    assert none.content == running.answer(PROMPT, COUNT) and none.tool_calls is None
    bare = ask(client, tools=openai.omit).choices[0].message
    assert bare.content == running.answer("<user>Hello<assistant>", COUNT) and bare.tool_calls is None


def test_the_session_knows_tools_and_template_options(serve):
    parser = Digits()
    with calling(serve, parser) as (_, client):
        ask(client, max_tokens=1, extra_body={"chat_template_kwargs": {"thinking": False}})
    (context,) = parser.contexts
    assert context.tools == (TOOL,) and context.template_kwargs == (("thinking", False),)


FAULTS = {
    "raises": (ValueError("boom"), r"tool_parser:digits \(turret-digits 1.0\).*boom"),
    "unknown call": ([ToolArgumentsDelta(4, "{}")], "went on with call 4"),
    "twice": ([ToolCallStart(0, "dial"), ToolCallStart(0, "dial")], "began call 0 twice"),
    "foreign event": (["hm"], "emitted a str"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_parser_fails_its_request_alone(serve, fault):
    what, sentence = FAULTS[fault]
    with calling(serve, Faulty(what)) as (running, client):
        with pytest.raises(openai.InternalServerError, match=sentence) as caught:
            ask(client)
        assert caught.value.status_code == 500
        with pytest.raises(openai.APIError, match=sentence):
            list(ask(client, stream=True))
        again = ask(client, tool_choice="none").choices[0].message
        assert again.content == running.answer(PROMPT, COUNT)
        metrics = httpx.get(f"{running.url}/metrics").text
        (aborted,) = re.findall(r'request_success_total\{[^}]*finished_reason="abort"[^}]*\} ([\d.]+)', metrics)
        assert float(aborted) == 2


def test_a_parser_alone_does_not_make_calls_automatic(serve):
    with (
        calling(serve, None) as (_, client),
        pytest.raises(openai.BadRequestError, match="no backend of structured output"),
    ):
        ask(client, tool_choice="required")
    with (
        serve(parts={"parsers": AnswerParsers(tools=Digits())}, tool_call_parser="digits") as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="--enable-auto-tool-choice and --tool-call-parser"),
    ):
        ask(client)


def test_automatic_calls_need_a_parser():
    with pytest.raises(ConfigError, match=r"^--enable-auto-tool-choice needs --tool-call-parser"):
        Config.from_options({"enable_auto_tool_choice": True})
