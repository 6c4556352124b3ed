"""The form that an answer is asked to have, from a body's fields to the grammar that the engine follows.

Owns: what `response_format` and `structured_outputs` mean together, and waiting for a grammar. Knows no backend. The
offline door uses it too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turret.config import StructuredConfig
from turret.contracts import ParserContext, ThinkingMarks
from turret.errors import RequestError
from turret.grammars import CompiledGrammar, GrammarService
from turret.messages import GrammarProgram
from turret.sampling import SamplingParams
from turret.server.forced_calls import forces_calls
from turret.server.wire import ChatRequest, SamplingFields
from turret.structured import FORMS, GrammarSpec, StructuredOutputsParams, structured_outputs
from turret.text import TextProcessor

if TYPE_CHECKING:
    from turret.server.state import ServerState

__all__ = ["Reasoning", "grammar_of", "program_of", "wanted_form"]

_KINDS = ("text", "json_object", "json_schema", "structural_tag")


def wanted_form(fields: SamplingFields) -> StructuredOutputsParams | None:
    """What a body says of its answer's form; None for any text. `response_format` goes before the same part of
    `structured_outputs`, whose switches hold for both. Raises `RequestError`."""
    part = _part(fields.response_format)
    given = fields.structured_outputs
    if part is None:
        return None if given is None else structured_outputs(given)
    kept = {name: value for name, value in (given or {}).items() if name not in part and value is not None}
    if clash := [name for name in FORMS if name in kept]:
        raise RequestError(f"structured_outputs.{clash[0]} and response_format ask for two forms; send one",
                           "structured_outputs")
    return structured_outputs({**kept, **part}, "response_format")


def program_of(
    service: GrammarService, wanted: StructuredOutputsParams | None, config: StructuredConfig
) -> GrammarProgram | None:
    """The grammar, waited for; raises `RequestError`."""
    if wanted is None:
        return None
    spec = _spec(service, wanted, config)
    try:
        return _program(service.known(spec) or service.compile(spec).result())
    except RequestError as error:
        raise _named(error, spec, "structured_outputs") from error


async def grammar_of(
    state: ServerState, params: SamplingParams, fields: SamplingFields, about: ParserContext | None = None
) -> GrammarProgram | None:
    """The grammar of a call, once it is compiled; raises `RequestError` and `CapacityError`. `about` is what a
    reasoning parser may know of the answer, where there is one to read it."""
    wanted, service = params.structured_outputs, state.parts.grammars
    if wanted is None:
        return None
    name = _field(fields)
    spec = _spec(service, wanted, state.config.structured, name)
    assert service is not None
    around = Reasoning() if about is None else _reasoning(state, about, name)
    try:
        found = service.known(spec)
        if found is None:
            future = await asyncio.to_thread(service.compile, spec)
            # Others may wait for the same grammar: a client that leaves does not take it from them.
            found = await asyncio.shield(asyncio.wrap_future(future))
    except RequestError as error:
        raise _named(error, spec, name) from error
    return _program(found, around)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Token sequences before a grammar: as `starts` and `after` of `GrammarProgram`."""

    starts: list[list[int]] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)


def _reasoning(state: ServerState, about: ParserContext, name: str) -> Reasoning:
    """Where the reasoning that may come first begins and ends."""
    parser, label = state.parts.parsers.reasoning, state.parts.parsers.reasoning_name
    if parser is None or state.config.structured.enable_in_reasoning:
        return Reasoning()
    ask = getattr(parser, "thinking", None)
    marks: ThinkingMarks | None = None if ask is None else ask(about)
    advice = "set enable_in_reasoning in --structured-outputs-config, or serve without --reasoning-parser"
    if marks is None:
        raise RequestError(f"{name}: {label} does not say where reasoning ends and the answer begins; {advice}", name)
    after = [ids for mark in marks.ends if (ids := _ids(state.text, mark)) is not None]
    if not after:
        sentence = f"the end of reasoning, {marks.ends[0]!r}, is no token of this model; {advice}"
        raise RequestError(f"{name}: {sentence}", name)
    starts = [ids for mark in marks.starts if (ids := _ids(state.text, mark)) is not None]
    if marks.begun:
        return Reasoning([], after)
    return Reasoning(starts, after) if starts else Reasoning()


def _ids(text: TextProcessor, mark: str) -> list[int] | None:
    """The tokens of a mark that is always the same tokens: one of its own, or several of which the first is special."""
    ids = text.tokenizer.encode(mark, add_special_tokens=False)
    sure = len(ids) == 1 or (ids and ids[0] in text.tokenizer.special_ids)
    return ids if sure and text.tokenizer.decode(ids, skip_special_tokens=False) == mark else None


def _field(fields: SamplingFields) -> str:
    """The field that asks for the form."""
    if isinstance(fields, ChatRequest) and forces_calls(fields):
        return "tool_choice"
    return "structured_outputs" if fields.response_format is None else "response_format"


def _part(response_format: dict[str, Any] | None) -> dict[str, Any] | None:
    """`response_format` as a part of `structured_outputs`."""
    kind = (response_format or {}).get("type", "text")
    if response_format is None or kind == "text":
        return None
    if kind not in _KINDS:
        raise RequestError(f"response_format.type must be one of {', '.join(_KINDS)}, got {kind!r}", "response_format")
    if kind == "json_object":
        return {"json_object": True}
    if kind == "structural_tag":
        return {"structural_tag": response_format}
    wanted = response_format.get("json_schema")
    schema = wanted.get("schema") if isinstance(wanted, dict) else None
    if not isinstance(schema, dict | bool):
        raise RequestError("response_format.json_schema.schema must be a JSON schema", "response_format")
    return {"json": schema}


def _spec(
    service: GrammarService | None, wanted: StructuredOutputsParams, config: StructuredConfig,
    name: str = "structured_outputs",
) -> GrammarSpec:  # fmt: skip
    if service is None or not service.available:
        raise RequestError(f"{name}: no backend of structured output is here, or no tokenizer; "
                           "turret-structured-xgrammar is the usual backend", name)
    if config.disable_any_whitespace and wanted.whitespace_pattern is None:
        wanted = _with(wanted, disable_any_whitespace=True)
    if config.disable_additional_properties:
        wanted = _with(wanted, disable_additional_properties=True)
    return wanted.spec()


def _with(wanted: StructuredOutputsParams, **switch: bool) -> StructuredOutputsParams:
    values = {name: getattr(wanted, name) for name in wanted.__struct_fields__}
    return StructuredOutputsParams(**{**values, **switch})


def _program(found: CompiledGrammar, around: Reasoning | None = None) -> GrammarProgram:
    around = around or Reasoning()
    return GrammarProgram(
        backend=found.backend, key=found.key, compiled=found.compiled, after=around.after, starts=around.starts)


def _named(error: RequestError, spec: GrammarSpec, field: str) -> RequestError:
    """The error of a grammar that cannot be followed; of a full server it stays what it is."""
    if type(error) is not RequestError:
        return error
    return RequestError(f"{field}: this {spec.kind} cannot be followed: {error}", field)

