"""Where an answer begins, and what more than the kit's samples can say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turret.contracts import ContentDelta, ParserContext, ReasoningDelta, ThinkingMarks
from turret.testing.parsers import merged, parse
from turret_parser_reasoning.conformance import ANSWERS
from turret_parser_reasoning.plugin import VariantParser
from turret_parser_reasoning.tags import Tags
from turret_parser_reasoning.variants import VARIANTS

PIECES = st.sampled_from([
    "<think>", "</think>", "<tool_call>", "\n", " ", "a", "<", "Here is my ", "thought process:", "response:", "é",
    "[THINK]", "[/THINK]", "<|channel|>", "analysis", "<|message|>", "<|end|>", "<response>", "◁think▷",
    "<|close|>think<|sep|>",
])  # fmt: skip


def read(name: str, text: str, context: ParserContext) -> tuple[str, str]:
    events = parse(VariantParser(VARIANTS[name]), [text], context)
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    return reasoning, "".join(event.text for event in events if isinstance(event, ContentDelta))


@pytest.mark.parametrize("name", sorted(VARIANTS))
@settings(max_examples=40, deadline=None)
@given(pieces=st.lists(PIECES, max_size=20), opened=st.booleans())
def test_any_text_is_read_the_same(name: str, pieces: list[str], opened: bool) -> None:
    context = ParserContext(prompt_tail="<think>" if opened else "assistant:")
    parser, text = VariantParser(VARIANTS[name]), "".join(pieces)
    whole = merged(parse(parser, [text], context))
    assert merged(parse(parser, list(text), context)) == whole
    assert merged(parse(parser, pieces, context)) == whole


def test_every_variant_has_a_sample() -> None:
    assert {name for names, *_ in ANSWERS for name in names} == set(VARIANTS) - {"deepseek-v3", "deepseek-v4"}


def test_the_prompt_outweighs_the_argument() -> None:
    """A template with a switch of another name: what stands in the prompt counts."""
    off = (("enable_thinking", False),)
    assert read("qwen3", "a</think>b", ParserContext(template_kwargs=off, prompt_tail="<think>\n")) == ("a", "b")
    on = (("thinking", True),)
    closed = ParserContext(template_kwargs=on, prompt_tail="<｜Assistant｜></think>")
    assert read("deepseek_v3", "b", closed) == ("", "b")


def test_without_a_prompt_the_argument_counts() -> None:
    assert read("deepseek_v3", "a</think>b", ParserContext(template_kwargs=(("thinking", True),))) == ("a", "b")
    assert read("deepseek_v3", "b", ParserContext()) == ("", "b")
    assert read("ernie45", "b", ParserContext(template_kwargs=(("enable_thinking", "off"),))) == ("", "b")


def test_earlier_turns_say_nothing() -> None:
    """Pairs of earlier turns are closed: only the last tag counts."""
    prompt = "<think>x</think>y<|im_end|>user: z<|im_end|>assistant\n"
    assert read("qwen3", "<think>a</think>b", ParserContext(prompt_tail=prompt)) == ("a", "b")
    assert read("deepseek_r1", "a</think>b", ParserContext(prompt_tail=prompt)) == ("a", "b")


def test_reasoning_streams() -> None:
    """Nothing is held back but what may still be a tag."""
    session = VariantParser(Tags(always=True)).open(ParserContext())
    assert session.feed("hello </thi", []) == [ReasoningDelta("hello ")]
    assert session.feed("ng", []) == [ReasoningDelta("</thing")]


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_forced_end_ends_it(name: str) -> None:
    """What a family's marks say of themselves is what its parser reads: opened, reasoned, forced to end, answered."""
    prompt = ParserContext(prompt_tail="assistant:", template_kwargs=(("thinking", True), ("enable_thinking", True)))
    marks = VariantParser(VARIANTS[name]).thinking(prompt)
    if marks is None:
        assert name in ("minimax_m2_append_think", "minimax-append-think")
        return
    start = "" if marks.begun else marks.starts[0]
    reasoning, content = read(name, f"{start}so be it{marks.force}The answer.", prompt)
    assert (reasoning.strip(), content.strip()) == ("so be it", "The answer.")
    reasoning, content = read(name, f"{start}{marks.force}The answer.", prompt)
    assert (reasoning.strip(), content.strip()) == ("", "The answer.")


def test_where_reasoning_stands() -> None:
    qwen = VariantParser(VARIANTS["qwen3"])
    closed, opened = ParserContext(prompt_tail="assistant\n"), ParserContext(prompt_tail="assistant\n<think>\n")
    expected = ThinkingMarks("</think>", ("</think>",), ("<think>",), ("<tool_call>",))
    assert qwen.thinking(closed) == expected
    begun = qwen.thinking(opened)
    assert begun is not None and begun.begun
    spaced = VariantParser(VARIANTS["step3p5"]).thinking(closed)
    assert spaced is not None and spaced.ends == ("</think>",) and spaced.force == "</think>"
