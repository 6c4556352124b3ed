"""Formats made of frames with headers: gpt-oss's harmony, Inkling, and MiniMax's answer that is not split.

Owns these. A frame that calls a tool is passed on as it stands, for the tool parser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from turret.contracts import ParserContext, ThinkingMarks
from turret.parsing import Marks, Reading, Source
from turret_parser_reasoning.split import Split

__all__ = ["AppendThink", "Harmony", "Inkling"]

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
RECIPIENT = re.compile(r"to=functions\.")
WORD = re.compile(r"\s*(?P<word>\w*)")


@dataclass(frozen=True, slots=True)
class Harmony:
    """<|channel|>NAME<|message|>BODY<|end|>: the channel `analysis` is reasoning, and may come back between calls."""

    def marks(self) -> Sequence[str]:
        """See `Format`."""
        return (START, CHANNEL, MESSAGE, "<|constrain|>", *ENDS)

    def thinking(self, context: ParserContext) -> ThinkingMarks:
        """See `Format`. The final channel follows a forced end: what a model would write after a plain one is its."""
        analysis = f"{CHANNEL}analysis{MESSAGE}"
        force = f"<|end|>{START}assistant{CHANNEL}final{MESSAGE}"
        begun = context.prompt_tail.endswith(analysis)
        return ThinkingMarks(force, ENDS, (analysis,), (START, CHANNEL), begun, again=True)

    def read(self, source: Source, split: Split) -> Reading[None]:
        """See `Format`."""
        marks = Marks((START, CHANNEL, MESSAGE, *ENDS))
        # Of the first frame the prompt holds the start: a recipient may stand before the channel.
        header = yield from source.text_if("to=functions.", MESSAGE, ENDS)
        if header is not None:
            yield from self._body(source, split, header)
        while True:
            mark = yield from source.flow(marks, split.content)
            if mark is None:
                return
            if mark in ENDS:
                continue
            header, end = ("", MESSAGE) if mark == MESSAGE else (yield from source.text_to(Marks((MESSAGE, *ENDS))))
            if end == MESSAGE:
                yield from self._body(source, split, mark + header)

    def _body(self, source: Source, split: Split, header: str) -> Reading[None]:
        word = WORD.match(header.rpartition(CHANNEL)[2])
        if RECIPIENT.search(header) is not None:
            split.content(header + MESSAGE)
            end = yield from source.flow(Marks(ENDS), split.content)
            split.content(end or "")
            return
        analysis = word is not None and word["word"] == "analysis"
        write = split.reasoning if analysis else split.content
        end = yield from source.flow(Marks((START, CHANNEL, *ENDS)), write)
        if end in (START, CHANNEL):
            source.back(len(end or ""))


MODEL, TEXT, THINKING, END = "<|message_model|>", "<|content_text|>", "<|content_thinking|>", "<|end_message|>"
INVOKE = "<|content_invoke_tool_json|>"


@dataclass(frozen=True, slots=True)
class Inkling:
    """<|message_model|>HEADER, then a block of thinking, text or a call, up to <|end_message|>."""

    def marks(self) -> Sequence[str]:
        """See `Format`."""
        return (MODEL, TEXT, THINKING, INVOKE, END)

    def thinking(self, context: ParserContext) -> ThinkingMarks:
        """See `Format`."""
        begun = context.prompt_tail.endswith(THINKING)
        return ThinkingMarks(f"{END}{MODEL}{TEXT}", (END,), (THINKING,), begun=begun, again=True)

    def read(self, source: Source, split: Split) -> Reading[None]:
        """See `Format`."""
        marks, blocks = Marks(self.marks()), Marks((TEXT, THINKING, INVOKE, END))
        while True:
            mark = yield from source.flow(marks, split.content)
            if mark is None:
                return
            header = ""
            if mark == MODEL:
                header, mark = yield from source.text_to(blocks)
            if mark == THINKING:
                yield from source.flow(Marks((END,)), split.reasoning)
            elif mark == INVOKE:
                split.content(f"{MODEL}{header}{INVOKE}")
                end = yield from source.flow(Marks((END,)), split.content)
                split.content(end or "")


@dataclass(frozen=True, slots=True)
class AppendThink:
    """Nothing is split: the answer is content whole, with the opener that the prompt held put before it."""

    def marks(self) -> Sequence[str]:
        """See `Format`."""
        return ("<think>", "</think>")

    def thinking(self, context: ParserContext) -> None:
        """See `Format`."""
        return None

    def read(self, source: Source, split: Split) -> Reading[None]:
        """See `Format`."""
        if (yield from source.peek(1)):
            yield from source.is_next("<think>")
            split.content("<think>")
        yield from source.flow(Marks(()), split.content)
