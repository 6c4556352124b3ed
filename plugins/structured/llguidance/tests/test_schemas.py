"""Specs that llguidance can be held to, walked at random and validated; those it would pass over are refused."""

from __future__ import annotations

import json
import re

import pytest
from jsonschema import Draft202012Validator

from turret.contracts import GrammarSpec
from turret.errors import RequestError
from turret.testing.structured import Walker, small_vocabulary
from turret_structured_llguidance.plugin import GuidanceBackend

HELD = [
    {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "null"}},
    {},
    {"type": "object"},
    {"type": "integer", "multipleOf": 3},
    {"type": "number", "minimum": 1.5, "maximum": 2.25},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "integer", "minimum": -4, "exclusiveMaximum": 9},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "z"]},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"required": ["a"]}]},
    {"properties": {"a": {"type": "null"}}},
    {"minimum": 3},
    {"enum": [1, "b", None, {"c": []}]},
    {"const": 'é"\\'},
    {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]},
    {"type": ["integer", "null"]},
    {"oneOf": [{"type": "integer"}, {"type": "array", "items": {"type": "null"}}]},
    {"type": "string", "minLength": 2, "maxLength": 300},
    {"type": "string", "pattern": '^a["\\\\]b$'},
    {"type": "string", "pattern": "^x\\d$"},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "null"}, "minItems": 2},
    {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "additionalProperties": False}},
    },
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "email"},
]
REFUSED = [
    {"type": "object", "minProperties": 2},
    {"type": "array", "uniqueItems": True},
    {"not": {}},
    {"x-guidance": {"lenient": True}},
    {"foo": 1},
    {"$ref": "#"},
    {"$ref": "other.json"},
    {"contains": {}},
    {"type": "string", "maxLength": 10**9},
    {"if": {}},
    {"$dynamicRef": "#a"},
    {"oneOf": [{"minimum": 2}, {"type": "integer"}]},
    {"properties": {"a": {"dependentRequired": {}}}},
    {"type": "nonsense"},
    {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    {"type": "string", "format": "x"},
    {"type": "array", "minItems": 3, "maxItems": 2},
    {"type": "string", "pattern": "(?=a)b"},
    False,
]


@pytest.fixture(scope="module")
def vocabulary():
    return small_vocabulary()


@pytest.fixture(scope="module")
def compiler(vocabulary):
    return GuidanceBackend().open(vocabulary)


def answers(compiler, vocabulary, spec: GrammarSpec) -> list[str]:
    assert GuidanceBackend().supports(spec).ok, GuidanceBackend().supports(spec).reasons
    grammar = compiler.restore(compiler.compile(spec))
    made = (Walker(vocabulary, 40).walk(grammar.matcher(vocabulary.stop_ids), seed) for seed in range(12))
    return [text.decode(errors="replace") for text in made if text is not None]


@pytest.mark.parametrize("schema", HELD, ids=lambda schema: json.dumps(schema)[:60])
def test_every_document_validates(compiler, vocabulary, schema):
    found = answers(compiler, vocabulary, GrammarSpec(kind="json", text=json.dumps(schema, ensure_ascii=False)))
    check = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    assert found, "no walk ends"
    for text in found:
        errors = [error.message for error in check.iter_errors(json.loads(text))]
        assert not errors, f"{text!r}: {errors[0]}"


@pytest.mark.parametrize("schema", REFUSED, ids=lambda schema: json.dumps(schema)[:60])
def test_what_would_be_passed_over_is_refused(compiler, schema):
    spec = GrammarSpec(kind="json", text=json.dumps(schema))
    if GuidanceBackend().supports(spec).ok:
        with pytest.raises(RequestError):
            compiler.compile(spec)


@pytest.mark.parametrize(
    ("spec", "pattern"),
    [
        (GrammarSpec(kind="json", text='{"type":"array"}', any_whitespace=False), r"[^\s]*|.*\".*"),
        (
            GrammarSpec(kind="json", text='{"const":[1,2]}', whitespace_pattern="[ \\n]{0,2}"),
            r"\s*\[[ \n]{0,2}1[ \n]{0,2},[ \n]{0,2}2[ \n]{0,2}\]",
        ),
        (GrammarSpec(kind="grammar", text='start: "a"+ B\nB: /[0-9]{2}/'), r"a+\d\d"),
        (GrammarSpec(kind="grammar", text='root ::= "a" x*\nx ::= [b-c]\n'), r"a[bc]*"),
    ],
)
def test_other_forms(compiler, vocabulary, spec, pattern):
    for text in answers(compiler, vocabulary, spec):
        assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize(
    "spec",
    [
        GrammarSpec(kind="grammar", text='start: %json {"type":"object"}'),
        GrammarSpec(kind="grammar", text='{"grammars":[]}'),
        GrammarSpec(kind="json", text="{}", whitespace_pattern="a+"),
        GrammarSpec(kind="structural_tag", text="{}"),
    ],
)
def test_ways_around_the_checks(spec):
    assert not GuidanceBackend().supports(spec).ok


def test_stop_ids_of_a_request_end_it(compiler, vocabulary):
    compiled = compiler.compile(GrammarSpec(kind="choice", text='["ab"]'))
    matcher = compiler.restore(compiled).matcher((1,))
    assert matcher.accept(2 + 97) and not matcher.accept(1) and matcher.accept(2 + 98)
    assert not matcher.accept(0) and matcher.accept(1) and matcher.is_terminated() and matcher.is_finished()
    matcher.rollback(2)
    assert not matcher.is_finished() and matcher.accept(2 + 98)
