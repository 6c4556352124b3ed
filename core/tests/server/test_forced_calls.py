"""Forced calls: the form they ask for, and reading them however they are cut."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from turret.contracts import ToolArgumentsDelta, ToolCallEnd, ToolCallStart
from turret.errors import RequestError
from turret.server.forced_calls import ForcedCalls, forced_form, forced_name
from turret.server.wire import ChatRequest

TREE = {
    "type": "object",
    "properties": {"left": {"$ref": "#"}, "kind": {"$ref": "#/$defs/kind"}},
    "$defs": {"kind": {"enum": ["a", "b"]}},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
    {"type": "function", "function": {"name": "tree", "parameters": TREE}},
    {"type": "function", "function": {"name": "ping"}},
]


def body(**changes) -> ChatRequest:
    return ChatRequest(messages=[{"role": "user", "content": "x"}], tools=TOOLS, **changes)


def read(session: ForcedCalls, pieces: list[str]) -> list[tuple[str, str, bool]]:
    """Name, arguments and whether it ended, of each call."""
    calls: list[list] = []
    for event in [*(e for piece in pieces for e in session.feed(piece, ())), *session.finish()]:
        if isinstance(event, ToolCallStart):
            assert event.index == len(calls)
            calls.append([event.name, "", False])
        elif isinstance(event, ToolArgumentsDelta):
            calls[event.index][1] += event.text
        else:
            assert isinstance(event, ToolCallEnd)
            calls[event.index][2] = True
    return [tuple(call) for call in calls]


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def test_the_form_of_required_holds_every_tool_and_their_own_definitions():
    form = forced_form(body(tool_choice="required"))
    check = Draft202012Validator(form.json)
    right = [{"name": "tree", "parameters": {"left": {"kind": "a"}}}, {"name": "ping", "parameters": {}}]
    assert check.is_valid(right)
    for wrong in (
        [],
        [{"name": "tree", "parameters": {"left": {"kind": "c"}}}],
        [{"name": "weather", "parameters": {}}],
        [{"name": "other", "parameters": {}}],
    ):
        assert not check.is_valid(wrong)
    single = forced_form(body(tool_choice="required", parallel_tool_calls=False))
    assert not Draft202012Validator(single.json).is_valid(right)


def test_the_form_of_a_named_function_is_its_parameters():
    wanted = body(tool_choice={"type": "function", "function": {"name": "tree"}})
    assert forced_form(wanted).json == TREE and forced_name(wanted) == "tree"


@pytest.mark.parametrize(
    "other", [{"structured_outputs": {"regex": "a"}}, {"response_format": {"type": "json_object"}}]
)
def test_a_call_and_another_form_are_refused(other):
    with pytest.raises(RequestError, match="structured_outputs and response_format"):
        forced_form(body(tool_choice="required", **other))


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=12)
ARGUMENTS = st.dictionaries(
    st.text(max_size=5), st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3)), max_size=4
)


@given(
    calls=st.lists(st.tuples(st.text(min_size=1, max_size=6), ARGUMENTS), min_size=1, max_size=4),
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    places=st.lists(st.integers(0, 10_000), max_size=9),
)
def test_a_list_reads_the_same_however_it_is_cut(calls, indent, ascii_only, places):
    text = json.dumps(
        [{"name": name, "parameters": given} for name, given in calls], indent=indent, ensure_ascii=ascii_only
    )
    found = read(ForcedCalls(None), cut(text, places))
    assert [(name, json.loads(given), ended) for name, given, ended in found] == [(*call, True) for call in calls]


@given(given=ARGUMENTS, places=st.lists(st.integers(0, 10_000), max_size=9))
def test_arguments_alone_belong_to_the_function_named(given, places):
    text = "\n " + json.dumps(given)
    [(name, arguments, ended)] = read(ForcedCalls("f"), cut(text, places))
    assert (name, json.loads(arguments), ended) == ("f", given, True)


def test_a_call_cut_off_keeps_what_there_is():
    assert read(ForcedCalls(None), ['[{"name": "f", "parameters": {"a": "b}']) == [("f", '{"a": "b}', False)]
    assert read(ForcedCalls(None), ['[{"na']) == []
    assert read(ForcedCalls("f"), [" "]) == []
