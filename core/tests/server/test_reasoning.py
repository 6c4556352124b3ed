"""Reasoning through a real server: a parser that takes letters up to the first digit for reasoning."""

from __future__ import annotations

import contextlib

import openai
import pytest

from turret.contracts import ContentDelta, ReasoningDelta, ThinkingMarks, ToolCallEnd, ToolCallStart
from turret.server.parts import AnswerParsers

MESSAGES = [{"role": "user", "content": "Hello"}]
COUNT = 120
TOOL = {"type": "function", "function": {"name": "dial", "parameters": {"type": "object", "properties": {}}}}


class UpToDigit:
    """Everything before the first digit is reasoning."""

    api = "1.2"
    kind = "reasoning_parser"
    force = "0"

    def __init__(self):
        self.contexts = []

    def open(self, ctx):
        self.contexts.append(ctx)
        return UpToDigitSession()

    def thinking(self, ctx):
        return ThinkingMarks(self.force, tuple("0123456789"), begun=True)


class UpToDigitSession:
    def __init__(self):
        self.thinking = True

    def feed(self, text, ids):
        events = []
        for letter in text:
            self.thinking = self.thinking and not letter.isdigit()
            events.append(ReasoningDelta(letter) if self.thinking else ContentDelta(letter))
        return events

    def finish(self):
        return []


class Stars:
    """Every character of the text is a call; shows what reaches a tool parser behind a reasoning parser."""

    api = "1.1"
    kind = "tool_parser"

    def open(self, ctx):
        return StarSession()

    def grammar(self, tools):
        return None


class StarSession:
    def __init__(self):
        self.text = ""

    def feed(self, text, ids):
        self.text += text
        return []

    def finish(self):
        return [ToolCallStart(0, "dial"), ToolCallEnd(0), ContentDelta(self.text)] if self.text else []


@contextlib.contextmanager
def thinking(serve, tools=None, **options):
    parsers = AnswerParsers(UpToDigit(), tools)
    with (
        serve(parts={"parsers": parsers}, reasoning_parser="up-to-digit", **options) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield running, client, parsers.reasoning


def ask(client, **body):
    return client.chat.completions.create(**{"model": "tiny", "messages": MESSAGES, "max_tokens": COUNT, **body})


def split(text):
    place = next((i for i, letter in enumerate(text) if letter.isdigit()), len(text))
    return text[:place], text[place:]


def test_whole_and_streamed_answers_agree(serve):
    with thinking(serve) as (running, client, parser):
        prompt = "<user>Hello<assistant>"
        reasoning, content = split(running.answer(prompt, COUNT))
        assert reasoning and content
        whole = ask(client)
        message = whole.choices[0].message
        assert (message.reasoning, message.content) == (reasoning, content)
        counted = whole.usage.completion_tokens_details.reasoning_tokens
        assert 0 < counted < COUNT
        deltas = [chunk.choices[0].delta for chunk in ask(client, stream=True)]
        assert "".join(getattr(delta, "reasoning", None) or "" for delta in deltas) == reasoning
        assert "".join(delta.content or "" for delta in deltas) == content
        assert parser.contexts[0].prompt_tail.endswith("<assistant>")


def test_reasoning_alone_leaves_null_content(serve):
    with thinking(serve) as (running, client, _):
        reasoning, _ = split(running.answer("<user>Hello<assistant>", COUNT))
        answer = ask(client, max_tokens=1)
        assert reasoning.startswith(answer.choices[0].message.reasoning) and answer.choices[0].message.content is None
        assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_may_be_left_out(serve, stream):
    with thinking(serve) as (running, client, _):
        _, content = split(running.answer("<user>Hello<assistant>", COUNT))
        answer = ask(client, stream=stream, extra_body={"include_reasoning": False})
        if stream:
            deltas = [chunk.choices[0].delta for chunk in answer]
            assert "".join(delta.content or "" for delta in deltas) == content
            assert not any(getattr(delta, "reasoning", None) for delta in deltas)
        else:
            message = answer.choices[0].message
            assert message.content == content and message.reasoning is None


def test_only_what_is_no_reasoning_reaches_the_tool_parser(serve):
    chosen = {"enable_auto_tool_choice": True, "tool_call_parser": "stars"}
    with thinking(serve, Stars(), **chosen) as (running, client, _):
        reasoning, content = split(running.answer("[tools:dial]<user>Hello<assistant>", COUNT))
        message = ask(client, tools=[TOOL]).choices[0].message
        assert message.reasoning == reasoning and message.content == (content or None)
        assert bool(message.tool_calls) == bool(content)


def test_completions_and_servers_without_a_parser_are_untouched(serve):
    with thinking(serve) as (running, client, _):
        text = client.completions.create(model="tiny", prompt="Hello", max_tokens=20).choices[0].text
        assert text == running.answer("Hello", 20)
    with serve() as running, openai.OpenAI(base_url=f"{running.url}/v1", api_key="none") as client:
        answer = ask(client)
        assert answer.choices[0].message.content == running.answer("<user>Hello<assistant>", COUNT)
        assert answer.choices[0].message.reasoning is None and answer.usage.completion_tokens_details is None


def test_a_budget_is_exact(serve):
    """That many tokens of reasoning, then its end, whole and streamed, for each choice; then the answer."""
    with thinking(serve) as (running, client, _):
        free, _ = split(running.answer("<user>Hello<assistant>", COUNT))
        size = len(free) - 2
        assert size > 2
        for field in ("max_thinking_tokens", "thinking_token_budget"):
            answer = ask(client, extra_body={field: size})
            message = answer.choices[0].message
            assert message.reasoning == free[:size] and message.content.startswith("0")
            assert answer.usage.completion_tokens_details.reasoning_tokens == size
            assert answer.usage.completion_tokens == COUNT
        several = ask(client, n=3, temperature=1.0, seed=5, extra_body={"max_thinking_tokens": 1})
        assert all(len(choice.message.reasoning) <= 1 for choice in several.choices)
        streamed = ask(client, stream=True, extra_body={"max_thinking_tokens": size})
        deltas = [chunk.choices[0].delta for chunk in streamed]
        assert "".join(getattr(delta, "reasoning", None) or "" for delta in deltas) == free[:size]
        assert "".join(delta.content or "" for delta in deltas) == message.content
        none = ask(client, extra_body={"max_thinking_tokens": 0}).choices[0].message
        assert none.reasoning is None and none.content.startswith("0")
        plenty = ask(client, extra_body={"max_thinking_tokens": 1000}).choices[0].message
        assert plenty.reasoning == free


def refusal(client, **body):
    with pytest.raises(openai.BadRequestError) as told:
        ask(client, extra_body=body)
    return told.value.body["param"], told.value.body["message"]


def test_budgets_that_cannot_be_kept(serve, tiny):
    with thinking(serve) as (_, client, parser):
        assert refusal(client, max_thinking_tokens=-1) == (
            "max_thinking_tokens", "max_thinking_tokens must not be negative, got -1"
        )
        assert "two names" in refusal(client, max_thinking_tokens=1, thinking_token_budget=2)[1]
        parser.force = "</think>"
        field, sentence = refusal(client, thinking_token_budget=3)
        assert field == "thinking_token_budget" and "'</think>' is no token" in sentence
        with pytest.raises(openai.BadRequestError, match="needs a conversation"):
            client.completions.create(model="tiny", prompt="x", extra_body={"thinking_token_budget": 3})
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as client:
        assert "needs a server started with --reasoning-parser" in refusal(client, max_thinking_tokens=3)[1]
