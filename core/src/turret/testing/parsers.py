"""Semantic cases of tool and reasoning parsers: what is read, and that it does not depend on how the text was cut.

Owns the cuts and the comparison. Knows no format: samples come from the plugin.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from turret.contracts import (
    ContentDelta,
    ParserContext,
    ParserEvent,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from turret.testing.cases import Case, Subject
from turret.testing.samples import ParserSample

__all__ = ["build", "merged", "parse"]

GENERIC = (
    "",
    "Plain text.",
    "a < b and {c: [d]}\n\n",
    'He said "<x>" \\ & </y>',
    "Łódź 你好 🎯",
    "<|tool|> [TOOL_CALLS] ```json\n{}\n```",
)
SEED = 20240617
RANDOM_CUTS = 30


def build(subject: Subject) -> Iterator[Case]:
    yield subject.case("semantic", "samples", _samples, subject)
    yield subject.case("semantic", "cuts", _cuts, subject)
    yield subject.case("semantic", "truncation", _truncation, subject)
    yield subject.case("semantic", "any_text", _any_text, subject)
    yield subject.case("semantic", "sessions_are_independent", _sessions, subject)


def parse(parser: Any, pieces: Sequence[str], context: ParserContext) -> list[ParserEvent]:
    """All events of one answer that arrives in pieces."""
    session = parser.open(context)
    events = [event for piece in pieces for event in session.feed(piece, [])]
    events.extend(session.finish())
    return events


def merged(events: Sequence[ParserEvent]) -> list[tuple[Any, ...]]:
    """Events with neighbouring deltas of one kind joined: what any cut must agree on."""
    joined: list[tuple[Any, ...]] = []
    for event in events:
        if isinstance(event, ToolCallStart):
            joined.append(("call", event.index, event.name))
        elif isinstance(event, ToolCallEnd):
            joined.append(("end", event.index))
        else:
            key = ("arguments", event.index) if isinstance(event, ToolArgumentsDelta) else (_word(event),)
            if joined and joined[-1][:-1] == key:
                joined[-1] = (*key, joined[-1][-1] + event.text)
            elif event.text:
                joined.append((*key, event.text))
    return joined


def _word(event: ContentDelta | ReasoningDelta) -> str:
    return "content" if isinstance(event, ContentDelta) else "reasoning"


def _samples(subject: Subject) -> None:
    parser = subject.load()
    for sample in subject.samples(ParserSample):
        events = parse(parser, [sample.text], sample.context)
        content = "".join(event.text for event in events if isinstance(event, ContentDelta))
        reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
        assert content == sample.content, f"{sample.name}: content"
        assert reasoning == sample.reasoning, f"{sample.name}: reasoning"
        assert _calls(events) == list(sample.calls), f"{sample.name}: calls"


def _calls(events: Sequence[ParserEvent]) -> list[tuple[str, Any]]:
    """(name, arguments) of each call; indices must count from 0 and arguments be JSON."""
    starts = [event for event in events if isinstance(event, ToolCallStart)]
    assert [start.index for start in starts] == list(range(len(starts))), "calls are numbered from 0"
    deltas = [event for event in events if isinstance(event, ToolArgumentsDelta)]
    texts = ["".join(delta.text for delta in deltas if delta.index == start.index) for start in starts]
    return [(start.name, json.loads(text)) for start, text in zip(starts, texts, strict=True)]


def _cuts(subject: Subject) -> None:
    """One piece, single characters, every cut in two, random cuts: the same events."""
    parser = subject.load()
    for sample in subject.samples(ParserSample):
        _agree(parser, sample.text, sample.context)


def _truncation(subject: Subject) -> None:
    """An answer may end anywhere: no exception, and still no dependence on cuts."""
    parser = subject.load()
    for sample in subject.samples(ParserSample):
        for end in range(len(sample.text)):
            text = sample.text[:end]
            whole = merged(parse(parser, [text], sample.context))
            assert merged(parse(parser, list(text), sample.context)) == whole, f"{text!r} depends on how it is cut"


def _any_text(subject: Subject) -> None:
    """Text in no format is no error."""
    parser = subject.load()
    for text in GENERIC:
        _agree(parser, text, ParserContext())


def _agree(parser: Any, text: str, context: ParserContext) -> None:
    whole = merged(parse(parser, [text], context))
    for pieces in _ways(text):
        assert merged(parse(parser, pieces, context)) == whole, f"{text!r} cut as {pieces} is read differently"


def _ways(text: str) -> Iterator[list[str]]:
    yield list(text)
    for place in range(1, len(text)):
        yield [text[:place], text[place:]]
    source = random.Random(SEED)
    for _ in range(RANDOM_CUTS if len(text) > 2 else 0):
        places = sorted(source.sample(range(1, len(text)), source.randint(1, min(8, len(text) - 1))))
        yield [text[start:stop] for start, stop in zip([0, *places], [*places, len(text)], strict=True)]


def _sessions(subject: Subject) -> None:
    """Two answers parsed in turn do not mix."""
    parser = subject.load()
    for sample in subject.samples(ParserSample):
        alone = merged(parse(parser, list(sample.text), sample.context))
        one, other = parser.open(sample.context), parser.open(sample.context)
        events: tuple[list[ParserEvent], list[ParserEvent]] = ([], [])
        for character in sample.text:
            events[0].extend(one.feed(character, []))
            events[1].extend(other.feed(character, []))
        assert merged([*events[0], *one.finish()]) == alone
        assert merged([*events[1], *other.finish()]) == alone
