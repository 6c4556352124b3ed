"""Every variant against what its family can write: each case read whole, and however the stream is cut."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import ALIASES, WRITERS, Call

from turret.contracts import ContentDelta, ParserContext, ToolArgumentsDelta, ToolCallEnd, ToolCallStart
from turret.testing.parsers import merged, parse
from turret_parser_tool.plugin import VariantParser
from turret_parser_tool.variants import VARIANTS

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "ratio": {"type": "number"},
        "metric": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object", "properties": {"lat": {"type": "number"}, "names": {"type": "array"}}},
        "note": {"type": ["string", "null"]},
        "from": {"type": "string"},
        "a-b": {"type": "string"},
    },
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "mcp.files-read_2", "parameters": SCHEMA}},
]
CONTEXT = ParserContext(tools=tuple(TOOLS))
NAMES = sorted(WRITERS)
PYTHON = ("pythonic", "llama4_pythonic", "olmo3", "lfm2")


def reading(name: str, pieces: Sequence[str], context: ParserContext = CONTEXT) -> tuple[str, list[Call]]:
    """Content and calls of an answer; asserts that calls are numbered, begun before they go on, and are JSON."""
    events = parse(VariantParser(VARIANTS[name]), pieces, context)
    content = "".join(event.text for event in events if isinstance(event, ContentDelta))
    texts: dict[int, str] = {}
    names: dict[int, str] = {}
    ended: set[int] = set()
    for event in events:
        if isinstance(event, ToolCallStart):
            assert event.index == len(names)
            names[event.index], texts[event.index] = event.name, ""
        elif isinstance(event, ToolArgumentsDelta):
            assert event.index in names and event.index not in ended
            texts[event.index] += event.text
        elif isinstance(event, ToolCallEnd):
            ended.add(event.index)
    return content, [(names[i], json.loads(texts[i])) for i in sorted(ended)]


def random_cuts(text: str, seed: int) -> list[str]:
    source = random.Random(seed)
    places = sorted(source.sample(range(1, len(text)), min(len(text) - 1, source.randint(1, 12))))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def agree(name: str, text: str, context: ParserContext = CONTEXT) -> None:
    """However it is cut, the same events."""
    parser = VariantParser(VARIANTS[name])
    whole = merged(parse(parser, [text], context))
    ways = [list(text), [text[i : i + 3] for i in range(0, len(text), 3)], *(random_cuts(text, s) for s in range(4))]
    for pieces in ways:
        assert merged(parse(parser, pieces, context)) == whole, pieces


CASES: dict[str, list[Call]] = {
    "one": [("get_weather", {"city": "Oslo", "days": 2})],
    "two": [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Łódź", "days": 1})],
    "none": [("now", {})],
    "none_then_some": [("now", {}), ("get_weather", {"city": "Oslo", "days": 2}), ("now", {})],
    "nested": [
        ("get_weather", {"where": {"lat": 59.9, "names": ["a", {"b": [1, None]}]}, "tags": ["x", "[y]", "{z}"]})
    ],
    "escapes": [("get_weather", {"city": 'a "b" \\c\\ {d} [e]', "note": "tab\tline\nend"})],
    "unicode": [("get_weather", {"city": "東京 🎯 é", "tags": ["ß", "Ω"]})],
    "numbers": [("get_weather", {"days": -3, "ratio": 0.25})],
    "big": [("get_weather", {"days": 9007199254740993, "ratio": 1e300})],
    "booleans": [("get_weather", {"metric": True, "note": None}), ("get_weather", {"metric": False})],
    "text_like_values": [("get_weather", {"city": "null", "from": "2"}), ("get_weather", {"city": "true"})],
    "empty_text": [("get_weather", {"city": "", "days": 1})],
    "odd_keys": [("get_weather", {"from": "here", "a-b": "c"})],
    "odd_name": [("mcp.files-read_2", {"city": "x"})],
    "markup": [("get_weather", {"city": "if a < b: print('</p>') && x > y", "from": "<b>bold</b>"})],
    "long": [("get_weather", {"city": "lorem ipsum {} [] \\ " * 200, "days": 1})],
}
CANNOT_WRITE = {("odd_keys", name) for name in PYTHON} | {
    ("nested", "minimax_m3")
}  # keywords as parameters are no Python; tags say nothing of null and numbers in lists


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, case: str) -> None:
    if (case, name) in CANNOT_WRITE:
        pytest.skip("the notation has no way to write it")
    text = WRITERS[name](CASES[case])
    assert reading(name, [text]) == ("", CASES[case])
    if case != "long":
        agree(name, text)


@pytest.mark.parametrize("name", NAMES)
def test_text_before_and_after(name: str) -> None:
    if name in ("xlam", "mistral"):
        pytest.skip("text before or after means something else in this format")
    calls = CASES["two"]
    text = f"Let me look. {WRITERS[name](calls)}"
    content, found = reading(name, [text])
    assert found == calls and content.rstrip() == "Let me look."
    agree(name, text)
    after = f"{WRITERS[name](calls)} Done."
    content, found = reading(name, [after])
    assert found == calls and content.strip() == "Done."


@pytest.mark.parametrize("name", NAMES)
def test_plain_text_is_untouched(name: str) -> None:
    for text in (
        "",
        "It is 3 < 4 and [x] {y}; <b>so</b> on.\n\n",
        "  spaces  ",
        "<tool",
        "[",
        "{",
        '{"a": 1}',
        "function",
    ):
        assert reading(name, [text]) == (text, [])
        agree(name, text or " ")


@pytest.mark.parametrize("name", NAMES)
def test_cut_off_anywhere(name: str) -> None:
    """An answer that ends early: no exception, only whole calls end, and what was told is a start of the whole."""
    text = "Hm. " + WRITERS[name](CASES["nested"] if name != "minimax_m3" else CASES["one"])
    parser = VariantParser(VARIANTS[name])
    whole = [e for e in parse(parser, [text], CONTEXT) if isinstance(e, ToolArgumentsDelta)]
    complete = "".join(e.text for e in whole)
    for end in range(0, len(text), 3):
        events = parse(parser, [text[:end]], CONTEXT)
        told = "".join(e.text for e in events if isinstance(e, ToolArgumentsDelta) and e.index == 0)
        assert complete.startswith(told), text[:end]


@pytest.mark.parametrize("name", NAMES)
def test_unknown_tool_and_key(name: str) -> None:
    """A tool that the request has not is passed on, except where only its name tells a call from text."""
    calls: list[Call] = [("get_wether", {"town": "Oslo", "n": 2})]
    content, found = reading(name, [WRITERS[name](calls)])
    if name in ("llama3_json", "llama4_json", "xlam", "pythonic"):
        assert not found and content
    else:
        assert found == calls
    known: list[Call] = [("get_weather", {"city": "Oslo", "extra": 5})]
    assert reading(name, [WRITERS[name](known)])[1] == known


@pytest.mark.parametrize("name", NAMES)
def test_no_schema(name: str) -> None:
    tools = ParserContext(tools=({"type": "function", "function": {"name": "get_weather"}},))
    calls: list[Call] = [("get_weather", {"city": "Oslo", "days": 2})]
    assert reading(name, [WRITERS[name](calls)], tools)[1] == calls


@pytest.mark.parametrize("name", NAMES)
def test_sessions_share_nothing(name: str) -> None:
    parser = VariantParser(VARIANTS[name])
    texts = [WRITERS[name](CASES["one"]), WRITERS[name](CASES["unicode"])]
    sessions = [parser.open(CONTEXT) for _ in texts]
    found: list[list[Any]] = [[], []]
    for place in range(max(map(len, texts))):
        for which, text in enumerate(texts):
            found[which] += sessions[which].feed(text[place : place + 1], [])
    for which, text in enumerate(texts):
        assert merged(found[which] + sessions[which].finish()) == merged(parse(parser, [text], CONTEXT))


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_alias_is_the_same(name: str) -> None:
    text = WRITERS[ALIASES[name]](CASES["one"])
    assert reading(name, [text]) == ("", CASES["one"])


def test_every_name_is_tested() -> None:
    assert set(VARIANTS) == set(WRITERS) | set(ALIASES)


ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "city": st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20),
        "days": st.integers(-(10**18), 10**18),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "metric": st.booleans(),
    },
)
JSON_FAMILIES = ("hermes", "jamba", "kimi_k2", "mistral", "openai", "deepseek_v31", "llama3_json", "granite-20b-fc")


@pytest.mark.parametrize("name", JSON_FAMILIES)
@settings(max_examples=40, deadline=None)
@given(
    calls=st.lists(st.tuples(st.sampled_from(["get_weather", "now"]), ARGUMENTS), min_size=1, max_size=3),
    seed=st.integers(0, 99),
)
def test_any_arguments(name: str, calls: list[Call], seed: int) -> None:
    text = WRITERS[name](calls)
    assert reading(name, random_cuts(text, seed)) == ("", calls)


PIECES = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<function=",
        "now>",
        "{",
        "}",
        "[",
        "]",
        '"',
        "\\",
        "get_weather(",
        "=",
        ",",
        ":",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "é",
        "x\n",
        "",
        "",
        "",
        "[TOOL_CALLS]",
        "<|channel|>",
        "<|message|>",
        "to=functions.now",
        "<|tool_call>",
        "call:now{",
        '<|"|>',
        "<invoke",
        'name="now">',
        "</invoke>\n",
        "",
        "",
        "",
        "'",
        "\\u12",
        "1e",
        "-",
        "tru",
        "]<]minimax[>[",
        "｜DSML｜",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "functools[",
        "```json",
        "<function_calls>\n",
        "",
        "",
        "",
        "<tool_calls>",
        "<|python_tag|>\n",
        "",
        "",
        "",
        "\n\n",
        "",
        "",
        "",
        "",
    ]
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(pieces=st.lists(PIECES, max_size=25))
def test_any_text_is_read_the_same(name: str, pieces: list[str]) -> None:
    """Whatever a model writes: no exception, and no dependence on cuts."""
    text = "".join(pieces)
    parser = VariantParser(VARIANTS[name])
    whole = merged(parse(parser, [text], CONTEXT))
    assert merged(parse(parser, list(text), CONTEXT)) == whole
    assert merged(parse(parser, pieces, CONTEXT)) == whole
