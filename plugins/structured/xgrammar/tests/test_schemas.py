"""Schemas that xgrammar can be held to, walked at random and validated; those it would bend are refused."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from turret.contracts import GrammarSpec
from turret.testing.structured import Walker, small_vocabulary
from turret_structured_xgrammar.plugin import XGrammarBackend

NODE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["value", "next"],
}
HELD = [
    {},
    True,
    {"type": "object"},
    {"type": "array"},
    {"type": ["string", "null"]},
    {"type": "boolean"},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "string", "maxLength": 0},
    {"type": "string", "minLength": 2},
    {"type": "string", "pattern": "^[a-c]+\\d{2}$"},
    {"type": "string", "pattern": "^(x|y)\\.z$"},
    {"type": "string", "pattern": "^.{2}$"},
    {"type": "string", "pattern": "[^a-z]x"},
    {"type": "integer", "minimum": -5, "maximum": 17},
    {"type": "integer", "exclusiveMinimum": 99},
    {"type": "integer", "exclusiveMaximum": -3},
    {"type": "integer", "minimum": 3, "maximum": 3},
    {"type": "number"},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": False},
    {"type": "array", "items": {"type": "null"}, "minItems": 3},
    {"type": "array", "maxItems": 0},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}},
    {"enum": ["a", 1, None, True, {"x": [1, 'é"\\\n']}]},
    {"const": {"a": 1}},
    {"const": 3.5},
    {"type": "string", "enum": ["q"]},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "null"}}]},
    {"allOf": [{"type": "integer"}]},
    {"oneOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]},
    {"type": "object", "properties": {'a"\\é': {"type": "null"}}, "required": ['a"\\é'], "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "boolean"}},
    {"type": "object", "additionalProperties": False},
    {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    {
        "$id": "http://example/x",
        "type": "object",
        "properties": {"a~/b": {"$ref": "#/definitions/t~0~1"}},
        "definitions": {"t~/": {"enum": [2]}},
    },
    {"type": "string", "format": "date"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "email"},
    {"type": "string", "format": "time"},
]
REFUSED = [
    ({"type": "integer", "multipleOf": 3}, "multipleOf"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"type": "array", "contains": {"const": 1}}, "contains"),
    ({"not": {"type": "null"}}, "not"),
    ({"if": True, "then": True}, "if"),
    ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
    ({"type": "string", "pattern": "\\bx"}, "escape"),
    ({"type": "string", "pattern": 'a"b'}, "quotes"),
    ({"type": "string", "pattern": "a\\\\b"}, "backslashes"),
    ({"type": "string", "pattern": "a\\nb"}, "escapes"),
    ({"type": "string", "maxLength": 300}, "256"),
    ({"type": "string", "format": "ipv4"}, "ipv4"),
    ({"type": "string", "pattern": "a{1,9999}"}, "4096"),
    ({"type": "string", "format": "hostname"}, "format"),
    ({"type": "string", "minLength": 2, "pattern": "a"}, "together"),
    ({"type": "number", "minimum": 1.5}, "bounds"),
    ({"oneOf": [{"minimum": 2}, {"type": "integer"}]}, "oneOf"),
    ({"allOf": [{"type": "object"}, {"type": "object"}]}, "allOf"),
    ({"properties": {"a": True}}, "without a type"),
    ({"type": "object", "properties": {"a": True}, "additionalProperties": True}, "additionalProperties"),
    ({"type": "object", "properties": {}, "required": ["a"]}, "required"),
    ({"$ref": "#/$defs/none"}, "points nowhere"),
    ({"$ref": "http://other"}, "itself"),
    ({"$ref": "#", "type": "object"}, "beside"),
    ({"enum": [1], "type": "string"}, "type"),
    (
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}},
        },
        "back",
    ),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "more than"),
    ({"type": "array", "maxItems": 10**9}, "4096"),
    ({"type": "object", "minProperties": 1}, "minProperties"),
    ({"type": "object", "properties": {"a": False}}, "false"),
    ({"type": "object", "patternProperties": {"a": True}}, "patternProperties"),
    ({"type": "string", "x": 1}, "x"),
]


@pytest.fixture(scope="module")
def vocabulary():
    return small_vocabulary()


@pytest.fixture(scope="module")
def compiler(vocabulary):
    return XGrammarBackend().open(vocabulary)


def spec(schema, **options) -> GrammarSpec:
    return GrammarSpec(kind="json", text=json.dumps(schema, ensure_ascii=False), **options)


@pytest.mark.parametrize("whitespace", [True, False])
@pytest.mark.parametrize("schema", HELD, ids=lambda schema: json.dumps(schema)[:60])
def test_every_document_validates(compiler, vocabulary, schema, whitespace):
    asked = spec(schema, any_whitespace=whitespace)
    verdict = XGrammarBackend().supports(asked)
    assert verdict.ok, verdict.reasons
    grammar = compiler.restore(compiler.compile(asked))
    check = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    walker, found = Walker(vocabulary, 40), 0
    for seed in range(12):
        made = walker.walk(grammar.matcher(vocabulary.stop_ids), seed)
        if made is None:
            continue
        found += 1
        text = made.decode(errors="replace")
        errors = [error.message for error in check.iter_errors(json.loads(text))]
        assert not errors, f"{text!r}: {errors[0]}"
    assert found, "no walk ends"


@pytest.mark.parametrize(("schema", "word"), REFUSED, ids=lambda value: json.dumps(value)[:60])
def test_what_would_be_bent_is_refused(schema, word):
    verdict = XGrammarBackend().supports(spec(schema))
    assert not verdict.ok and word in verdict.reasons[0]


def test_schemas_and_expressions_inside_a_structural_tag_are_looked_at():
    def tag(content) -> GrammarSpec:
        form = {"type": "tag", "begin": "<a>", "content": content, "end": "</a>"}
        return GrammarSpec(kind="structural_tag", text=json.dumps({"type": "structural_tag", "format": form}))

    backend = XGrammarBackend()
    assert backend.supports(tag({"type": "json_schema", "json_schema": {"type": "integer"}})).ok
    assert not backend.supports(tag({"type": "json_schema", "json_schema": {"type": "integer", "multipleOf": 2}})).ok
    assert not backend.supports(tag({"type": "regex", "pattern": "(?!a)b"})).ok


def test_a_structural_tag_leaves_text_free_until_it_is_called(compiler, vocabulary):
    form = {
        "type": "triggered_tags",
        "triggers": ["<f"],
        "tags": [
            {
                "type": "tag",
                "begin": "<f>",
                "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
                "end": "</f>",
            }
        ],
    }
    text = json.dumps({"type": "structural_tag", "format": form})
    matcher = compiler.restore(compiler.compile(GrammarSpec(kind="structural_tag", text=text))).matcher((0,))
    for byte in b"so <f>":
        assert matcher.accept(2 + byte)
    assert not matcher.accept(2 + ord("x")) and not matcher.is_finished()
    for byte in b"12</f> and more":
        assert matcher.accept(2 + byte)
    assert matcher.is_finished()
