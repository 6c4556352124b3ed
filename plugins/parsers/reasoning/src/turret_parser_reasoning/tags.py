"""Reasoning between two tags, either of which may be missing.

Owns the format `Tags` and the question that decides most of it: does the answer begin inside reasoning?
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turret.contracts import ParserContext, ThinkingMarks
from turret.parsing import Marks, Reading, Source
from turret_parser_reasoning.split import Split

__all__ = ["Tags"]

LINE_ENDS = re.compile(r"[\r\n]*")
OFF = ("none", "disabled", "off", "no", "false", "0")


@dataclass(frozen=True, slots=True)
class Tags:
    """`openers` and `closers` are spellings of the tags.

    `always`: the family reasons in every answer, so one that shows no opener begins inside reasoning. `switch` is the
    template argument that turns reasoning on or off, `default` what holds without it, and `in_prompt` says that the
    template writes the opener; the three matter only where the prompt is not known. `ends_too` are marks that end
    reasoning and belong to what follows it, a tool call for instance. `drop` is markup of the answer that is no
    content. With `again` reasoning may come back after content. `ignore_prompt` is for families whose prompts hold tags
    that say nothing of the answer; `strip` takes white space off both sides of the tags.
    """

    openers: tuple[str, ...] = ("<think>",)
    closers: tuple[str, ...] = ("</think>",)
    always: bool = False
    switch: str | None = None
    default: bool = False
    in_prompt: bool = False
    ends_too: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    again: bool = False
    ignore_prompt: bool = False
    strip: bool = False

    def marks(self) -> Sequence[str]:
        """See `Format`."""
        return (*self.openers, *self.closers, *self.ends_too, *self.drop)

    def begins_open(self, prompt_tail: str, arguments: Mapping[str, object]) -> bool:
        """Whether the answer begins inside reasoning: the last tag of the prompt tells, whatever the arguments say."""
        if prompt_tail and not self.ignore_prompt:
            opened = max(prompt_tail.rfind(tag) for tag in self.openers)
            closed = max(prompt_tail.rfind(tag) for tag in self.closers)
            if self.always:
                return not prompt_tail.rstrip().endswith(self.closers)
            return opened > closed
        if self.switch is None:
            return self.always or self.in_prompt
        value = arguments.get(self.switch, self.default)
        on = value.lower() not in OFF if isinstance(value, str) else bool(value)
        return on and (self.always or self.in_prompt)

    def thinking(self, context: ParserContext) -> ThinkingMarks:
        """See `Format`. Of spellings that differ in white space around a tag, the tag alone is looked for."""
        ends = _shortest(self.closers)
        begun = self.begins_open(context.prompt_tail, dict(context.template_kwargs))
        return ThinkingMarks(ends[0], ends, _shortest(self.openers), self.ends_too, begun, self.again)

    def read(self, source: Source, split: Split) -> Reading[None]:
        """See `Format`."""
        opened = self.begins_open(split.context.prompt_tail, dict(split.context.template_kwargs))
        space = yield from source.space()
        said = (yield from source.one_of(Marks(self.openers))) is not None
        if not opened and not said:
            split.content(space)
            yield from self._content(source, split)
            return
        if said:
            yield from source.run(LINE_ENDS, lambda text: None)
        else:
            split.reasoning(space)
        yield from self._reasoning(source, split)
        yield from self._content(source, split)

    def _reasoning(self, source: Source, split: Split) -> Reading[None]:
        if self.strip:
            yield from source.space()
        mark = yield from source.flow(Marks((*self.closers, *self.ends_too)), split.reasoning)
        if mark in self.ends_too:
            source.back(len(mark or ""))
        elif mark is not None:
            yield from source.run(LINE_ENDS, lambda text: None)
            if self.strip:
                yield from source.space()

    def _content(self, source: Source, split: Split) -> Reading[None]:
        marks = Marks((*self.drop, *(self.openers if self.again else ())))
        while True:
            mark = yield from source.flow(marks, split.content)
            if mark is None:
                return
            if mark in self.openers:
                yield from self._reasoning(source, split)


def _shortest(spellings: Sequence[str]) -> tuple[str, ...]:
    """Without those that hold another one."""
    return tuple(one for one in spellings if not any(other != one and other in one for other in spellings))
