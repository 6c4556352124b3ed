"""Runs in turret's own environment: reads answers with its parsers, whole and cut at random, for oracles elsewhere.

Standard input: {"answers": [{"text", "tool"?, "reasoning"?, "prompt"?, "kwargs"?, "tools"?}, ...]}; a parser named
`auto` is chosen by the `template` of the answer. Standard output: a list of {"reasoning", "content", "calls": [[name,
arguments, id], ...], "chosen": [tool, reasoning]}. An answer that is read differently when cut ends the program.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

from turret.compose.hosts import plugin_host
from turret.compose.parser_choice import recognised, template_query
from turret.config import Config
from turret.contracts import ContentDelta, ParserContext, ReasoningDelta, ToolArgumentsDelta, ToolCallStart


def parser_of(host: Any, kind: str, answer: dict[str, Any]) -> tuple[str | None, Any]:
    name = answer.get("tool" if kind == "tool_parser" else "reasoning")
    if name is None:
        return None, None
    if name == "auto":
        chosen = recognised(host.select(kind, template_query(answer["template"])))
        return (None, None) if chosen is None else (chosen.name, host.load(chosen))
    return name, host.load(host.select(kind, key=name, explicit=name).require())


def read(parsers: tuple[Any, Any], pieces: list[str], context: ParserContext) -> dict[str, Any]:
    tools, reasoning = (None if parser is None else parser.open(context) for parser in parsers)
    found: dict[str, Any] = {"reasoning": "", "content": "", "calls": []}

    def take(events: list[Any], last: bool) -> None:
        rest = ""
        for event in events:
            if isinstance(event, ReasoningDelta):
                found["reasoning"] += event.text
            elif isinstance(event, ContentDelta):
                rest += event.text
        called = [] if tools is None else [*tools.feed(rest, []), *(tools.finish() if last else [])]
        if tools is None:
            found["content"] += rest
        for event in called:
            if isinstance(event, ContentDelta):
                found["content"] += event.text
            elif isinstance(event, ToolCallStart):
                found["calls"].append([event.name, "", event.call_id])
            elif isinstance(event, ToolArgumentsDelta):
                found["calls"][event.index][1] += event.text

    for place, piece in enumerate(pieces):
        last = place == len(pieces) - 1
        events = [ContentDelta(piece)]
        if reasoning is not None:
            events = [*reasoning.feed(piece, []), *(reasoning.finish() if last else [])]
        take(events, last)
    return found


def cuts(text: str, source: random.Random) -> list[str]:
    places = sorted(source.sample(range(1, len(text)), min(len(text) - 1, source.randint(1, 30)))) if text else []
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def main() -> None:
    host = plugin_host(Config().plugins, frozenset({"front"}))
    source, told = random.Random(5), []
    for answer in json.load(sys.stdin)["answers"]:
        kwargs = tuple((answer.get("kwargs") or {}).items())
        context = ParserContext(tuple(answer.get("tools") or ()), kwargs, answer.get("prompt", ""))
        tool, reasoning = parser_of(host, "tool_parser", answer), parser_of(host, "reasoning_parser", answer)
        parsers = (tool[1], reasoning[1])
        whole = read(parsers, [answer["text"]], context)
        for pieces in (list(answer["text"]) or [""], *(cuts(answer["text"], source) for _ in range(5))):
            again = read(parsers, pieces, context)
            for one, other in zip(whole["calls"], again["calls"], strict=True):
                other[2] = one[2]  # ids are made up anew
            assert again == whole, pieces
        told.append({**whole, "chosen": [tool[0], reasoning[0]]})
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
