"""Reasoning and calls in one answer, by first-party parsers behind one reader, however the answer is cut."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace

import pytest

from turret.compose.hosts import plugin_host
from turret.config import Config
from turret.server.answer_reader import answer_readers
from turret.server.parts import AnswerParsers
from turret.server.wire import ChatRequest

TOOLS = [
    {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    },
    {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
]
F, G = ("f", {"x": 1}), ("g", {})
HERMES = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
    '{"x": 1}<|tool_call_end|><|tool_calls_section_end|>'
)
# name: reasoning parser, tool parser, end of the prompt, answer, reasoning, content, calls
ANSWERS = {
    "thinks, then calls": ("qwen3", "hermes", "assistant\n<think>\n", f"hm</think>\n\n{HERMES}", "hm", "", [F]),
    "calls before it closed": ("qwen3", "hermes", "assistant\n<think>\n", f"hm {HERMES}", "hm ", "", [F]),
    "thinking off": ("qwen3", "hermes", "<think>\n\n</think>\n\n", f"Sure. {HERMES}", "", "Sure. ", [F]),
    "no opener in the prompt": ("qwen3", "hermes", "assistant\n", f"<think>a</think>b{HERMES}", "a", "b", [F]),
    "never closed": ("deepseek_r1", "deepseek_v3", "<｜Assistant｜><think>\n", "on and on", "on and on", "", []),
    "a call quoted in thought": ("minimax_m2", "minimax_m2", "<think>\n", "say <minimax:tool_call>x</think>y",
                                 "say <minimax:tool_call>x", "y", []),
    "thinks between calls": (
        "openai_gptoss", "openai", "<|start|>assistant",
        "<|channel|>analysis<|message|>one<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        '<|constrain|>json<|message|>{"x": 1}<|call|><|start|>assistant<|channel|>analysis<|message|>two<|end|>'
        "<|start|>assistant to=functions.g<|channel|>commentary<|message|>{}<|call|>", "onetwo", "", [F, G],
    ),
    "a lone call token ends it": ("kimi_k2", "kimi_k2", "<think>", f"hm{KIMI}", "hm", "", [F]),
    "action block": (
        "cohere_command4", "cohere_command4", "<|START_THINKING|>",
        'hm<|END_THINKING|><|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"x": 1}}]'
        "<|END_ACTION|>", "hm", "", [F],
    ),
    "channels": (
        "gemma4", "gemma4", "<|turn>model\n", "<|channel>thought\nhm<channel|>Now: <|tool_call>call:f{x:1}<tool_call|>",
        "hm", "Now: ", [F],
    ),
    "keys and values": (
        "glm45", "glm47", "<|assistant|>\n",
        "<think>hm</think>\n<tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value></tool_call><tool_call>g</tool_call>",
        "hm", "", [F, G],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def host():
    return plugin_host(Config().plugins, frozenset({"front"}))


def read(host, reasoning, tools, prompt, pieces):
    loaded = [
        host.load(host.select(kind, key=name, explicit=name).require())
        for kind, name in (("reasoning_parser", reasoning), ("tool_parser", tools))
    ]
    state = SimpleNamespace(parts=SimpleNamespace(parsers=AnswerParsers(*loaded)))
    body = ChatRequest(messages=[], tools=TOOLS)
    [reader] = answer_readers(state, body, prompt, 1, True)
    for place, piece in enumerate(pieces):
        reader.read(piece, [place], place == len(pieces) - 1)
    calls = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in reader.calls]
    return reader.reasoning, reader.content, calls


@pytest.mark.parametrize("case", ANSWERS)
def test_one_answer(host, case):
    reasoning, tools, prompt, text, *expected = ANSWERS[case]
    source = random.Random(11)
    ways = [[text], list(text), *([text[:i], text[i:]] for i in range(1, len(text)))]
    for _ in range(10):
        places = sorted(source.sample(range(1, len(text)), min(len(text) - 1, 6)))
        ways.append([text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)])
    for pieces in ways:
        assert list(read(host, reasoning, tools, prompt, pieces)) == expected, pieces
