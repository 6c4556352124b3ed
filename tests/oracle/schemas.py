"""JSON Schema as grammars hold it: what compiles, what is generated, and what the suite's own documents show.

Owns: `Measured` and `measure`. Knows no backend.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator

from turret.contracts import Grammar, GrammarCompiler, GrammarSpec, StructuredBackend, Vocabulary
from turret.errors import RequestError
from turret.testing.structured import Walker
from turret.text import Tokenizer

WALKS = 6


@dataclass
class Measured:
    """`compiled` of `schemas`; `documents` were generated, `unfinished` walks did not end; `wrong` says of each
    document that was generated or taken and does not validate. Of the valid documents given `taken` of `valid` are
    taken."""

    schemas: int = 0
    compiled: int = 0
    documents: int = 0
    unfinished: int = 0
    valid: int = 0
    taken: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    by_backend: dict[str, int] = field(default_factory=dict)

    def line(self) -> str:
        """One line of JSON."""
        return json.dumps({
            "schemas": self.schemas, "compiled": round(self.compiled / max(self.schemas, 1), 3),
            "by_backend": self.by_backend, "documents": self.documents, "unfinished": self.unfinished,
            "wrong": len(self.wrong), "valid_taken": round(self.taken / max(self.valid, 1), 3),
        })


@dataclass(frozen=True)
class Bench:
    """Backends in the order they are asked, over one tokenizer."""

    backends: Mapping[str, tuple[StructuredBackend, GrammarCompiler]]
    tokenizer: Tokenizer
    vocabulary: Vocabulary

    def compiled(self, schema: Any) -> tuple[str, Grammar] | str:
        """A grammar and who made it; else why nobody could."""
        spec = GrammarSpec(kind="json", text=json.dumps(schema, ensure_ascii=False))
        reasons = []
        for name, (backend, compiler) in self.backends.items():
            verdict = backend.supports(spec)
            if not verdict.ok:
                reasons.append(f"{name}: {verdict.reasons[0]}")
                continue
            try:
                return name, compiler.restore(compiler.compile(spec))
            except RequestError as error:
                reasons.append(f"{name}: {error}")
        return "; ".join(reasons)


def measure(bench: Bench, cases: Iterable[Mapping[str, Any]]) -> Measured:
    """`cases` hold a `schema`, and `tests` with `data` and whether it is `valid`."""
    found = Measured()
    walker = Walker(bench.vocabulary)
    for case in cases:
        schema = case["schema"]
        found.schemas += 1
        made = bench.compiled(schema)
        if isinstance(made, str):
            found.refused[made] = found.refused.get(made, 0) + 1
            continue
        name, grammar = made
        found.compiled += 1
        found.by_backend[name] = found.by_backend.get(name, 0) + 1
        _generate(found, walker, (name, schema, grammar), bench.vocabulary)
        for test in case.get("tests", ()):
            _try(found, bench, (name, schema, grammar), test)
    return found


def _generate(found: Measured, walker: Walker, made: tuple[str, Any, Grammar], vocabulary: Vocabulary) -> None:
    name, schema, grammar = made
    validator = Draft202012Validator(schema)
    for seed in range(WALKS):
        document = walker.walk(grammar.matcher(vocabulary.stop_ids), seed)
        if document is None:
            found.unfinished += 1
            continue
        found.documents += 1
        text = document.decode(errors="replace")
        try:
            errors = [error.message for error in validator.iter_errors(json.loads(text))]
        except ValueError as error:
            errors = [f"no JSON: {error}"]
        if errors:
            found.wrong.append(f"{name}: {json.dumps(schema)} gives {text!r}: {errors[0]}")


def _try(found: Measured, bench: Bench, made: tuple[str, Any, Grammar], test: Mapping[str, Any]) -> None:
    name, schema, grammar = made
    matcher = grammar.matcher(bench.vocabulary.stop_ids)
    ids = bench.tokenizer.encode(json.dumps(test["data"], ensure_ascii=False), add_special_tokens=False)
    taken = all(matcher.accept(token) for token in ids) and matcher.is_finished()
    if test["valid"]:
        found.valid += 1
        found.taken += taken
    elif taken:
        found.wrong.append(f"{name}: {json.dumps(schema)} takes {json.dumps(test['data'])}, which is invalid")
