"""The text of an answer as it arrives, read by generators that pause where they need more.

Owns the buffer, the search for marks and what may be told while a mark could still be on its way. Knows no format.

A grammar is written as if the whole text were there: `yield from source.peek(3)`. It pauses by yielding, and is resumed
when text was added or the answer ended. Since it sees nothing but characters in their order and never where one piece
ended, what it makes of them cannot depend on how they were cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

__all__ = ["Marks", "Reading", "Source", "Write"]

T = TypeVar("T")
Reading = Generator[None, None, T]
Write = Callable[[str], None]

SPACE = re.compile(r"\s*")
COMPACT_AT = 1 << 12  # consumed characters that are worth dropping


class Marks:
    """A set of strings to look for: the leftmost wins, of those that begin there the longest."""

    def __init__(self, marks: Iterable[str]) -> None:
        self.all = tuple(sorted(dict.fromkeys(m for m in marks if m), key=len, reverse=True))
        self._whole = re.compile("|".join(map(re.escape, self.all)) or r"(?!)")
        self._longest = max(map(len, self.all), default=0)
        starts = dict.fromkeys(mark[:size] for mark in self.all for size in range(1, len(mark)))
        self._partial = re.compile(f"(?:{'|'.join(map(re.escape, starts)) or '(?!)'})\\Z")

    def find(self, text: str, at: int) -> tuple[int, str] | None:
        """Place and spelling of the first mark from `at` on."""
        match = self._whole.search(text, at)
        return None if match is None else (match.start(), match.group())

    def pending(self, text: str, at: int) -> int:
        """Where the earliest tail begins that more text could make a mark of; the text's length if there is none."""
        match = self._partial.search(text, max(at, len(text) - self._longest + 1))
        return len(text) if match is None else match.start()


class Source:
    """What has arrived and is not consumed yet."""

    def __init__(self) -> None:
        self.ended = False
        self._text = ""
        self._at = 0
        self._kept: int | None = None  # from where on consumed text may be wanted again

    def add(self, text: str) -> None:
        """More text has arrived."""
        keep = self._at if self._kept is None else self._kept
        if keep > COMPACT_AT:
            self._text, self._at = self._text[keep:], self._at - keep
            self._kept = None if self._kept is None else 0
        self._text += text

    def keep(self) -> None:
        """From here on, consumed text can be had again with `since_kept`."""
        self._kept = self._at

    def release(self) -> None:
        """What was consumed since `keep` is not wanted again."""
        self._kept = None

    def since_kept(self) -> str:
        """The text consumed since `keep`, which ends; nothing after `release`."""
        start, self._kept = self._at if self._kept is None else self._kept, None
        return self._text[start : self._at]

    def back(self, count: int) -> None:
        """Give back the last `count` consumed characters."""
        self._at -= count

    def peek(self, count: int) -> Reading[str]:
        """The next `count` characters, fewer only at the end."""
        while len(self._text) - self._at < count and not self.ended:
            yield
        return self._text[self._at : self._at + count]

    def take(self, count: int) -> str:
        """Consume characters that `peek` has shown."""
        text = self._text[self._at : self._at + count]
        self._at += len(text)
        return text

    def space(self) -> Reading[str]:
        """Consume white space; there is none left at the next character."""
        start = ""
        while True:
            match = SPACE.match(self._text, self._at)
            assert match is not None
            start += match.group()
            self._at = match.end()
            if self._at < len(self._text) or self.ended:
                return start
            yield

    def run(self, pattern: re.Pattern[str], write: Write) -> Reading[None]:
        """Consume and tell all characters that `pattern` (a repeated character class) matches."""
        while True:
            match = pattern.match(self._text, self._at)
            assert match is not None
            if match.group():
                write(match.group())
                self._at = match.end()
            if self._at < len(self._text) or self.ended:
                return
            yield

    def is_next(self, mark: str) -> Reading[bool]:
        """Consume `mark` if it stands here."""
        for size in range(1, len(mark) + 1):
            if (yield from self.peek(size)) != mark[:size]:
                return False
        self._at += len(mark)
        return True

    def one_of(self, marks: Marks) -> Reading[str | None]:
        """Consume the longest of the marks that stands here."""
        size, found = 1, None
        while True:
            ahead = yield from self.peek(size)
            if ahead in marks.all:
                found = ahead
            if len(ahead) < size or not any(len(m) > size and m.startswith(ahead) for m in marks.all):
                break
            size += 1
        if found is not None:
            self._at += len(found)
        return found

    def flow(self, marks: Marks, write: Write, inside: bool = False) -> Reading[str | None]:
        """Tell text up to the first mark, which is consumed and returned; None at the end of the answer.

        A start of a mark at the very end is text, unless it lies `inside` a call, where a mark was to be expected.
        """
        while True:
            found = marks.find(self._text, self._at)
            limit = marks.pending(self._text, self._at)
            if found is not None and (found[0] < limit or self.ended):
                self._tell(found[0], write)
                self._at += len(found[1])
                return found[1]
            self._tell(len(self._text) if self.ended and not inside else limit, write)
            if self.ended:
                self._at = len(self._text)
                return None
            yield

    def text_to(self, marks: Marks) -> Reading[tuple[str, str | None]]:
        """The whole text up to the first mark, and the mark."""
        parts: list[str] = []
        mark = yield from self.flow(marks, parts.append)
        return "".join(parts), mark

    def text_if(self, begin: str, end: str, others: Sequence[str]) -> Reading[str | None]:
        """The whole text up to `end`, which is consumed too, if after white space `begin` stands here and none of
        `others` comes first; else None, and nothing is consumed."""
        self.keep()
        yield from self.space()
        if (yield from self.is_next(begin)):
            _, mark = yield from self.text_to(Marks((end, *others)))
            if mark == end:
                return self.since_kept().removesuffix(end)
        self.back(len(self.since_kept()))
        return None

    def _tell(self, end: int, write: Write) -> None:
        if end > self._at:
            write(self._text[self._at : end])
            self._at = end
