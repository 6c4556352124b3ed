"""Forms of answers: what may be asked for, and the one text that it comes to."""

from __future__ import annotations

import json

import pytest

from turret import SamplingParams, StructuredOutputsParams
from turret.contracts import GrammarSpec
from turret.errors import RequestError
from turret.structured import structured_outputs

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "it has none"),
        ({"json": {}, "regex": "a"}, "json and regex"),
        ({"json_object": False}, "only be true"),
        ({"foo": 1}, "foo"),
        ({"regex": ""}, "empty"),
        ({"choice": []}, "between 1"),
        ({"choice": ["a", ""]}, "empty"),
        ({"choice": "ab"}, "choice"),
        ({"json": "{"}, "no JSON"),
        ({"json": "[1]"}, "object or a boolean"),
        ({"json": 1}, "json"),
        ({"json": "[" * 100_000}, "no JSON"),
        ({"structural_tag": {"a": 1}}, "format, or structures"),
        ({"structural_tag": {"structures": [{"begin": "<"}], "triggers": ["<"]}}, "begin, schema and end"),
        ({"regex": "a", "whitespace_pattern": " "}, "for json"),
        ({"regex": "a" * (1 << 19)}, "characters"),
        ({"json": {}, "whitespace_pattern": " ", "disable_any_whitespace": True}, "contradict"),
        ({"json": {"minimum": float("nan")}}, "number"),
    ],
)
def test_what_cannot_be_asked_for(fields, sentence):
    with pytest.raises(RequestError, match=sentence) as found:
        structured_outputs(fields).spec()
    assert found.value.param == "structured_outputs" and "\n" not in str(found.value)


def test_a_schema_nested_too_deep():
    schema: dict = {}
    for _ in range(100):
        schema = {"items": schema}
    with pytest.raises(RequestError, match="64 deep"):
        structured_outputs({"json": schema}).spec()


def test_a_schema_is_one_text_in_its_own_order():
    as_text = StructuredOutputsParams(json=json.dumps(SCHEMA, indent=2)).spec()
    assert as_text == StructuredOutputsParams(json=SCHEMA).spec()
    assert list(json.loads(as_text.text)["properties"]) == ["b", "a"]
    assert as_text.key != StructuredOutputsParams(json=SCHEMA, disable_any_whitespace=True).spec().key
    assert StructuredOutputsParams(json_object=True).spec() == GrammarSpec(kind="json_object")


def test_objects_are_closed_where_their_schema_says_nothing():
    schema = {
        "type": "object",
        "properties": {
            "o": {**SCHEMA, "additionalProperties": {"type": "null"}},
            "e": {"enum": [{"type": "object", "properties": {}}]},
        },
    }
    made = json.loads(StructuredOutputsParams(json=schema, disable_additional_properties=True).spec().text)
    assert made["additionalProperties"] is False
    assert made["properties"]["o"]["additionalProperties"] == {"type": "null"}
    assert made["properties"]["e"] == schema["properties"]["e"], "values are no schemas"


def test_both_forms_of_structural_tags():
    older = {
        "type": "structural_tag",
        "triggers": ["<f"],
        "structures": [{"begin": "<f>", "schema": json.dumps(SCHEMA), "end": "</f>"}],
    }
    spec = structured_outputs({"structural_tag": older}).spec()
    form = json.loads(spec.text)["format"]
    assert form["type"] == "triggered_tags" and form["tags"][0]["content"]["json_schema"] == SCHEMA
    newer = structured_outputs({"structural_tag": {"type": "structural_tag", "format": form}}).spec()
    assert newer == spec


def test_parameters_take_the_object_or_its_fields():
    params = SamplingParams(structured_outputs={"choice": ["a"]})  # type: ignore[arg-type]
    assert params.structured_outputs == StructuredOutputsParams(choice=["a"])
    with pytest.raises(RequestError, match="regex and choice"):
        SamplingParams(structured_outputs={"choice": ["a"], "regex": "b"})  # type: ignore[arg-type]
