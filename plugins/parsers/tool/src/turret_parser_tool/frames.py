"""Answers made of frames, each with a header: gpt-oss's harmony and Inkling.

Owns these two grammars. A frame is reasoning, content or a call by its header.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from turret.parsing import Marks, Reading, Source
from turret_parser_tool.calls import Calls
from turret_parser_tool.grammar import is_name
from turret_parser_tool.json_text import json_value
from turret_parser_tool.objects import ObjectShape, Outcome, read_call

__all__ = ["Harmony", "Inkling"]

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
RECIPIENT = re.compile(r"to=(?P<name>[^\s<]+)")
WORD = re.compile(r"\s*(?P<word>\w*)")


@dataclass(frozen=True, slots=True)
class Harmony:
    """<|channel|>NAME to=RECIPIENT<|message|>BODY<|end|>: analysis is reasoning, a recipient makes a call."""

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        return (START, CHANNEL, MESSAGE, "<|constrain|>", *ENDS)

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        marks = Marks((START, CHANNEL, MESSAGE, *ENDS))
        # Of the first frame the prompt holds the start: a recipient may stand before the channel.
        header = yield from source.text_if("to=functions.", MESSAGE, ENDS)
        if header is not None:
            yield from self._body(source, calls, header)
        while True:
            mark = yield from source.flow(marks, calls.content)
            if mark is None:
                return
            calls.border()
            if mark in ENDS:
                continue
            header, end = (mark, MESSAGE) if mark == MESSAGE else (yield from source.text_to(Marks((MESSAGE, *ENDS))))
            if end == MESSAGE:
                yield from self._body(source, calls, mark + header)

    def _body(self, source: Source, calls: Calls, header: str) -> Reading[None]:
        recipient = RECIPIENT.search(header)
        _, _, after = header.rpartition(CHANNEL)
        word = WORD.match(after)
        channel = word["word"] if word is not None else ""
        if recipient is not None and recipient["name"].startswith("functions."):
            yield from self._call(source, calls, recipient["name"].removeprefix("functions."))
            return
        write = calls.reasoning if channel == "analysis" else calls.content
        mark = yield from source.flow(Marks((START, CHANNEL, *ENDS)), write)
        if mark in (START, CHANNEL):
            source.back(len(mark or ""))
        calls.border()

    def _call(self, source: Source, calls: Calls, name: str) -> Reading[None]:
        yield from source.space()
        if not is_name(name):
            return
        calls.start(name)
        ahead = yield from source.peek(1)
        whole = ahead == "{" and (yield from json_value(source, calls.arguments))
        yield from source.space()
        end = yield from source.one_of(Marks(ENDS))
        if whole or (end is not None and ahead != "{"):
            calls.end()
        else:
            calls.cut()


MODEL, TEXT, THINKING = "<|message_model|>", "<|content_text|>", "<|content_thinking|>"
INVOKE, END = "<|content_invoke_tool_json|>", "<|end_message|>"


@dataclass(frozen=True, slots=True)
class Inkling:
    """<|message_model|>HEADER, then a typed block up to <|end_message|>."""

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        return (MODEL, TEXT, THINKING, INVOKE, END)

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        blocks = Marks((TEXT, THINKING, INVOKE, END))
        while True:
            mark = yield from source.flow(Marks(self.marks()), calls.content)
            if mark is None:
                return
            calls.border()
            if mark == MODEL:
                _, mark = yield from source.text_to(blocks)
            if mark == THINKING:
                yield from source.flow(Marks((END,)), calls.reasoning)
                calls.border()
            elif mark == INVOKE:
                yield from self._call(source, calls)

    def _call(self, source: Source, calls: Calls) -> Reading[None]:
        source.keep()
        yield from source.space()
        outcome = yield from read_call(source, calls, ObjectShape())
        if outcome is Outcome.BROKEN:
            calls.content(source.since_kept())
        source.release()
