"""From a body's fields to a grammar: which field counts, and where the grammar begins when there is reasoning."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from turret.config import StructuredConfig
from turret.contracts import GrammarSpec, ParserContext, ThinkingMarks
from turret.errors import CapacityError, RequestError
from turret.grammars import CompiledGrammar
from turret.sampling import SamplingParams
from turret.server.parts import AnswerParsers
from turret.server.structure import grammar_of, program_of, wanted_form
from turret.server.wire import ChatRequest
from turret.structured import StructuredOutputsParams
from turret.text import FastTokenizer, SpecialTokens, TextProcessor

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


class Service:
    """Compiles everything at once, but for what says otherwise."""

    available = True

    def __init__(self) -> None:
        self.asked: list[GrammarSpec] = []

    def known(self, spec):
        return None

    def compile(self, spec):
        self.asked.append(spec)
        future: Future[CompiledGrammar] = Future()
        if spec.text == "full":
            future.set_exception(CapacityError("later"))
        elif spec.text == "bad":
            future.set_exception(RequestError("it is bad"))
        else:
            future.set_result(CompiledGrammar("b", spec.key, b"c"))
        return future


class Parser:
    def __init__(self, marks: ThinkingMarks | None) -> None:
        self.marks = marks

    def thinking(self, ctx):
        return self.marks


@pytest.fixture(scope="module")
def text() -> TextProcessor:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<think>", "</think>", "</s>"])
    return TextProcessor(FastTokenizer(backend, SpecialTokens(eos_token_id=backend.token_to_id("</s>"))), {})


def state(text, marks=None, parser=True, **config):
    parsers = AnswerParsers(reasoning=Parser(marks)) if parser else AnswerParsers()
    structured = StructuredConfig(structured_outputs_config=config)
    return SimpleNamespace(parts=SimpleNamespace(grammars=Service(), parsers=parsers), text=text,
                           config=SimpleNamespace(structured=structured))


def body(**changes) -> ChatRequest:
    return ChatRequest(messages=[], **changes)


def compiled(made, **changes):
    wanted = StructuredOutputsParams(**(changes or {"json": SCHEMA}))
    params = SamplingParams(structured_outputs=wanted)
    return asyncio.run(grammar_of(made, params, body(), ParserContext()))


@pytest.mark.parametrize(("fields", "made"), [
    ({}, None), ({"response_format": {"type": "text"}}, None),
    ({"response_format": {"type": "json_object"}}, {"json_object": True}),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}, {"json": SCHEMA}),
    ({"structured_outputs": {"regex": "a"}}, {"regex": "a"}),
    ({"structured_outputs": {"json": {}, "disable_any_whitespace": True}, "response_format": {
        "type": "json_schema", "json_schema": {"schema": SCHEMA}}}, {"json": SCHEMA, "disable_any_whitespace": True}),
])
def test_the_form_of_a_body(fields, made):
    assert wanted_form(body(**fields)) == (None if made is None else StructuredOutputsParams(**made))


@pytest.mark.parametrize(("fields", "param"), [
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}}, "response_format"),
    ({"response_format": {"type": "structural_tag"}}, "structured_outputs"),
    ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ({"structured_outputs": {"nonsense": 1}}, "structured_outputs"),
])
def test_bodies_that_ask_for_no_form(fields, param):
    with pytest.raises(RequestError) as found:
        made = wanted_form(body(**fields))
        assert made is not None
        made.spec()
    assert found.value.param == param


def test_the_operator_s_switches_hold_for_every_form(text):
    made = state(text, parser=False, disable_any_whitespace=True, disable_additional_properties=True)
    assert compiled(made).backend == "b"
    [spec] = made.parts.grammars.asked
    assert not spec.any_whitespace and '"additionalProperties":false' in spec.text


def test_faults_keep_their_kind(text):
    with pytest.raises(RequestError, match="this regex cannot be followed: it is bad") as found:
        compiled(state(text, parser=False), regex="bad")
    assert found.value.param == "structured_outputs"
    with pytest.raises(CapacityError):
        compiled(state(text, parser=False), regex="full")
    with pytest.raises(RequestError, match="it is bad"):
        program_of(Service(), StructuredOutputsParams(regex="bad"), StructuredConfig())
    absent = state(text, parser=False)
    absent.parts.grammars = None
    with pytest.raises(RequestError, match="no backend"):
        compiled(absent)


def test_a_grammar_begins_where_reasoning_ends(text):
    open_tag, close_tag = (text.tokenizer.token_id(tag) for tag in ("<think>", "</think>"))
    marks = ThinkingMarks(force="</think>", ends=("</think>",), starts=("<think>",))
    maybe = compiled(state(text, marks))
    assert (maybe.starts, maybe.after) == ([[open_tag]], [[close_tag]])
    begun = ThinkingMarks(force="</think>", ends=("</think>",), starts=("<think>",), begun=True)
    inside = compiled(state(text, begun))
    assert (inside.starts, inside.after) == ([], [[close_tag]])
    never = ThinkingMarks(force="</think>", ends=("</think>",))
    assert not compiled(state(text, never)).after
    assert not compiled(state(text, begun, enable_in_reasoning=True)).after


@pytest.mark.parametrize("marks", [None, ThinkingMarks(force="[end]", ends=("[end]",), begun=True)])
def test_an_end_of_reasoning_that_no_token_is(text, marks):
    with pytest.raises(RequestError, match="enable_in_reasoning"):
        compiled(state(text, marks))
