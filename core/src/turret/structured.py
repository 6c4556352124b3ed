"""What a caller may ask of the form of an answer, and the grammar that it comes to.

Owns: `StructuredOutputsParams` (the fields that users of vLLM know), their checks, and `GrammarSpec`, the one canonical
text that backends compile. Knows no backend, tokenizer or model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from turret.errors import RequestError

__all__ = ["FORMS", "GrammarSpec", "StructuredOutputsParams", "structured_outputs"]

FIELD = "structured_outputs"
FORMS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
"""Fields of which exactly one says what the answer must look like."""
MAX_CHARACTERS = 1 << 18
MAX_DEPTH = 64
MAX_CHOICES = 4096

GrammarKind = Literal["json", "regex", "choice", "grammar", "json_object", "structural_tag"]


class GrammarSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One form, as text: a JSON schema, a regular expression, a JSON list of choices, a grammar (EBNF with `::=`, else
    Lark), a structural tag as JSON; empty for `json_object`. `any_whitespace`: JSON may be spaced freely. A
    `whitespace_pattern` is a regular expression for the space between tokens of JSON."""

    kind: GrammarKind
    text: str = ""
    any_whitespace: bool = True
    whitespace_pattern: str | None = None

    @property
    def key(self) -> str:
        """Equal for specs that mean the same."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class StructuredOutputsParams(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Exactly one of `json` (a schema, or its text), `regex`, `choice`, `grammar`, `json_object` and `structural_tag`.

    `disable_any_whitespace`: JSON is written without free white space. `disable_additional_properties`: objects hold
    only the properties that their schema names, unless it says otherwise. Raises `RequestError`.
    """

    json: str | dict[str, Any] | bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | dict[str, Any] | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"it has {' and '.join(given)}" if given else "it has none"
            raise _error(f"must have exactly one of {', '.join(FORMS)}; {found}")
        if self.json_object is False:
            raise _error("json_object can only be true; leave it out to ask for nothing")
        for name in ("regex", "grammar"):
            if getattr(self, name) == "":
                raise _error(f"{name} must not be empty")
        if self.choice is not None:
            _check_choices(self.choice)
        if self.whitespace_pattern is not None and self.json is None and self.json_object is None:
            raise _error("whitespace_pattern is for json and json_object")
        if self.whitespace_pattern is not None and self.disable_any_whitespace:
            raise _error("whitespace_pattern and disable_any_whitespace contradict each other")

    def spec(self) -> GrammarSpec:
        """The grammar that this comes to. Raises `RequestError` for what is no schema, no tag or too large."""
        made = self._spec()
        if len(made.text) > MAX_CHARACTERS:
            raise _error(f"{made.kind} may have {MAX_CHARACTERS} characters, got {len(made.text)}")
        return made

    def _spec(self) -> GrammarSpec:
        space = {"any_whitespace": not self.disable_any_whitespace, "whitespace_pattern": self.whitespace_pattern}
        if self.json is not None:
            schema = _parsed(self.json, "json")
            if self.disable_additional_properties:
                schema = _closed(schema)
            return GrammarSpec(kind="json", text=_canonical(schema), **space)  # type: ignore[arg-type]
        if self.json_object is not None:
            return GrammarSpec(kind="json_object", **space)  # type: ignore[arg-type]
        if self.structural_tag is not None:
            tag = _structural_tag(_parsed(self.structural_tag, "structural_tag"))
            return GrammarSpec(kind="structural_tag", text=_canonical(tag),
                               any_whitespace=not self.disable_any_whitespace)
        if self.choice is not None:
            return GrammarSpec(kind="choice", text=_canonical(self.choice))
        if self.regex is not None:
            return GrammarSpec(kind="regex", text=self.regex)
        assert self.grammar is not None
        return GrammarSpec(kind="grammar", text=self.grammar)


def structured_outputs(fields: Mapping[str, Any], where: str = FIELD) -> StructuredOutputsParams:
    """The object of a body; raises `RequestError` that names what is wrong in it. `where` is the body's own field."""
    try:
        return msgspec.convert(dict(fields), StructuredOutputsParams)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, RequestError):
            raise RequestError(str(error.__cause__), where) from None
        raise RequestError(f"{where}: {error}", where) from None


def _error(what: str) -> RequestError:
    return RequestError(f"{FIELD}: {what}" if what.startswith("must") else f"{FIELD}.{what}", FIELD)


def _check_choices(choices: list[str]) -> None:
    if not choices or len(choices) > MAX_CHOICES:
        raise _error(f"choice must hold between 1 and {MAX_CHOICES} strings, got {len(choices)}")
    if not all(choices):
        raise _error("choice must not hold an empty string")


def _parsed(given: Any, name: str) -> Any:
    """JSON as values, from its text where it is one."""
    if isinstance(given, str):
        if len(given) > 4 * MAX_CHARACTERS:
            raise _error(f"{name} may have {MAX_CHARACTERS} characters, got {len(given)}")
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise _error(f"{name} is no JSON: {error}") from None
    if not isinstance(given, dict | (bool if name == "json" else dict)):
        raise _error(f"{name} must be {'a schema: an object or a boolean' if name == 'json' else 'an object'}")
    _check_depth(given, name)
    return given


def _check_depth(value: Any, name: str) -> None:
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise _error(f"{name} is nested more than {MAX_DEPTH} deep")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        level, depth = inner, depth + 1


def _canonical(value: Any) -> str:
    """The order of properties is kept: answers follow it."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise _error(f"json holds a number that JSON has no way to write: {error}") from None


def _closed(schema: Any) -> Any:
    """Objects of a schema take no further properties, where it says nothing of them."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: value if name in ("const", "enum", "default", "examples") else _closed(value)
            for name, value in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made


def _structural_tag(tag: dict[str, Any]) -> dict[str, Any]:
    """A structural tag in its newer form: `format`; the older one has `structures` and `triggers`."""
    if isinstance(tag.get("format"), dict):
        return {"type": "structural_tag", "format": tag["format"]}
    structures, triggers = tag.get("structures"), tag.get("triggers")
    if not isinstance(structures, list) or not isinstance(triggers, list) or not structures:
        raise _error("structural_tag must have a format, or structures and triggers")
    tags = []
    for entry in structures:
        if not isinstance(entry, dict) or not {"begin", "end"} <= set(entry):
            raise _error("structural_tag: each of structures must have begin, schema and end")
        schema = _parsed(entry.get("schema", {}), "json")
        tags.append({"type": "tag", "begin": entry["begin"], "end": entry["end"],
                     "content": {"type": "json_schema", "json_schema": schema}})
    return {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": triggers, "tags": tags}}
