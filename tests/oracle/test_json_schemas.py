"""What grammars make of JSON Schema: every document that they generate, or take, validates.

The schemas are those that agents and frameworks send, and with JSON_SCHEMA_SUITE (scripts/schema_suite.sh) the
JSON-Schema-Test-Suite's, whose invalid documents no grammar may take. Needs no model: answers are walked at random over
the demo's tokenizer.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from schemas import Bench, Measured, measure

from turret.checkpoint import ResolveOptions, resolve
from turret.compose.grammars import structured_backends
from turret.compose.hosts import plugin_host
from turret.config import PluginConfig, StructuredConfig
from turret.plugins import unguarded
from turret.text import grammar_vocabulary, load_tokenizer


class Place(BaseModel):
    street: str
    number: int = Field(ge=1, le=9999)
    zip: str = Field(pattern=r"^[0-9]{5}$")


class Person(BaseModel):
    name: str = Field(min_length=1, max_length=40)
    age: int | None = None
    places: list[Place] = Field(max_length=3)
    friends: list[Person] = []
    scores: dict[str, float] = {}


COMMON: list[dict[str, Any]] = [
    {"schema": Person.model_json_schema(), "tests": [
        {"data": {"name": "A", "places": [{"street": "s", "number": 3, "zip": "12345"}]}, "valid": True},
        {"data": {"name": "A", "places": [{"street": "s", "number": 0, "zip": "12345"}]}, "valid": False},
        {"data": {"name": "A", "places": [{"street": "s", "number": 3, "zip": "1234"}]}, "valid": False},
        {"data": {"places": []}, "valid": False},
    ]},
    {"schema": {"type": "object", "properties": {"path": {"type": "string"}, "recursive": {"type": "boolean"}},
                "required": ["path"], "additionalProperties": True},
     "tests": [{"data": {"path": "a", "mode": 7}, "valid": True}, {"data": {"path": 7}, "valid": False},
               {"data": {"recursive": True}, "valid": False}]},
    {"schema": {"type": "object", "required": ["unit", "t"],
                "properties": {"unit": {"enum": ["c", "f"]}, "t": {"type": "number", "minimum": -273.15}}},
     "tests": [{"data": {"unit": "c", "t": -300}, "valid": False}, {"data": {"unit": "k", "t": 1}, "valid": False},
               {"data": {"unit": "c", "t": 21.5}, "valid": True}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def bench() -> Bench:
    checkpoint = resolve("demo", ResolveOptions())
    tokenizer = load_tokenizer(checkpoint)
    vocabulary = grammar_vocabulary(tokenizer, checkpoint.eos_token_ids)
    found = structured_backends(plugin_host(PluginConfig(), frozenset({"front"})), StructuredConfig())
    assert list(found) == ["xgrammar", "llguidance"], "the order in which auto asks"
    return Bench({name: (unguarded(b), b.open(vocabulary)) for name, b in found.items()}, tokenizer, vocabulary)


def told(found: Measured) -> None:
    print(found.line())
    assert not found.wrong, "\n".join(found.wrong[:20])


@pytest.mark.model
def test_schemas_that_clients_send(bench: Bench) -> None:
    found = measure(bench, COMMON)
    told(found)
    assert found.compiled == found.schemas and found.documents and found.taken == found.valid, found.line()


@pytest.mark.model
def test_the_suite(bench: Bench) -> None:
    place = os.environ.get("JSON_SCHEMA_SUITE")
    if not place:
        pytest.skip("JSON_SCHEMA_SUITE names no directory: scripts/schema_suite.sh fetches the suite")
    cases = [case for file in sorted(Path(place).glob("*.json")) for case in json.loads(file.read_text())]
    found = measure(bench, cases)
    told(found)
    assert found.schemas > 300 and found.compiled > 0.35 * found.schemas, found.line()
    assert found.taken > 0.85 * found.valid, found.line()
