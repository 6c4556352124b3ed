"""What the matrix leaves: cuts where a tokenizer cuts, names that begin alike, text that quotes markup, escapes."""

from __future__ import annotations

import json
from functools import cache

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers
from wire import WRITERS, Call

from turret.contracts import ParserContext, ToolArgumentsDelta, ToolCallStart
from turret.testing.parsers import merged, parse
from turret_parser_tool.plugin import VariantParser
from turret_parser_tool.variants import VARIANTS

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
NAMES_ALIKE = ("get", "get_weather", "get_weather_now", "now")
CONTEXT = ParserContext(
    tools=tuple({"type": "function", "function": {"name": n, "parameters": PARAMETERS}} for n in NAMES_ALIKE)
)
ALIKE: list[Call] = [
    ("get", {"city": "a"}), ("get_weather_now", {"city": "get_weather", "days": 12}), ("get_weather", {"city": "get"}),
]  # fmt: skip
AWKWARD: list[Call] = [("get_weather", {"city": 'Łódź 🎯 "q" \\ {x} [y] <z>', "days": -40}), ("now", {})]
VARIANT_NAMES = sorted(WRITERS)


def calls_of(name: str, pieces: list[str]) -> list[Call]:
    found: list[tuple[str, str]] = []
    for event in parse(VariantParser(VARIANTS[name]), pieces, CONTEXT):
        if isinstance(event, ToolCallStart):
            found.append((event.name, ""))
        elif isinstance(event, ToolArgumentsDelta):
            found[event.index] = (found[event.index][0], found[event.index][1] + event.text)
    return [(tool, json.loads(text)) for tool, text in found]


@cache
def tokenizer() -> tokenizers.Tokenizer:
    """Byte pairs learned from the formats themselves, so that tokens straddle their marks."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"\s?\w+|\s?[^\s\w]+|\s+"), "isolated")
    texts = [WRITERS[name](calls) for name in VARIANT_NAMES for calls in (ALIKE, AWKWARD)]
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=700, show_progress=False))
    return made


def tokens(text: str) -> list[str]:
    places = [end for _, end in tokenizer().encode(text).offsets]
    return [text[start:end] for start, end in zip([0, *places[:-1]], places, strict=True)]


@pytest.mark.parametrize("name", VARIANT_NAMES)
def test_tokens_one_at_a_time_and_several(name: str) -> None:
    for calls in (ALIKE, AWKWARD):
        text = "Hm. " + WRITERS[name](calls) if name != "xlam" else WRITERS[name](calls)
        pieces = tokens(text)
        assert "".join(pieces) == text and len(pieces) < len(text)
        whole = merged(parse(VariantParser(VARIANTS[name]), [text], CONTEXT))
        for size in (1, 2, 3, 5):
            several = ["".join(pieces[i : i + size]) for i in range(0, len(pieces), size)]
            assert merged(parse(VariantParser(VARIANTS[name]), several, CONTEXT)) == whole, size


@pytest.mark.parametrize("name", VARIANT_NAMES)
def test_names_that_begin_alike(name: str) -> None:
    text = WRITERS[name](ALIKE)
    assert calls_of(name, [text]) == calls_of(name, list(text)) == ALIKE


@pytest.mark.parametrize("name", VARIANT_NAMES)
def test_arguments_grow_into_json(name: str) -> None:
    """Character by character: what was told of a call is always a start of its final text, and is told once."""
    text = WRITERS[name](AWKWARD)
    final = calls_of(name, [text])
    session, told = VariantParser(VARIANTS[name]).open(CONTEXT), [""] * len(final)
    history = []
    for letter in text:
        for event in session.feed(letter, []):
            if isinstance(event, ToolArgumentsDelta):
                told[event.index] += event.text
        history.append(tuple(told))
    for event in session.finish():
        if isinstance(event, ToolArgumentsDelta):
            told[event.index] += event.text
    assert [json.loads(one) for one in told] == [arguments for _, arguments in final]
    assert all(whole.startswith(part) for then in history for part, whole in zip(then, told, strict=True))


JSON_TEXT = ("hermes", "jamba", "mistral", "deepseek_v31", "kimi_k2", "openai", "phi4_mini_json")


@pytest.mark.parametrize("name", [*JSON_TEXT, "llama3_json", "granite"])
def test_json_is_passed_on_as_it_was_written(name: str) -> None:
    """Escapes are neither resolved nor doubled, spacing stays, and half a surrogate pair is no error."""
    written = '{"city":  "\\u0141\\u00f3d\\u017a \\ud83c\\udfaf \\n \\/ \\ud83c", "days": 1.50}'
    text = WRITERS[name]([("get_weather", {"city": "HERE"})]).replace('{"city": "HERE"}', written)
    assert written in text
    for pieces in ([text], list(text)):
        events = parse(VariantParser(VARIANTS[name]), pieces, CONTEXT)
        assert "".join(event.text for event in events if isinstance(event, ToolArgumentsDelta)) == written


@pytest.mark.parametrize("name", JSON_TEXT)
def test_markup_inside_a_string_is_text(name: str) -> None:
    """Formats whose arguments are JSON: a string may quote the very marks that end a call."""
    marks = VariantParser(VARIANTS[name]).special_tokens
    quoted = " ".join(mark for mark in marks if '"' not in mark and "\n" not in mark)
    calls: list[Call] = [("get_weather", {"city": f"{{ {quoted} }} ]", "days": 1}), ("now", {})]
    text = WRITERS[name](calls)
    assert calls_of(name, [text]) == calls_of(name, list(text)) == calls
