"""Calls written as Python: [get_weather(city='Oslo', days=2), now()].

Owns the grammar and the reading of literals. Nothing is evaluated; values come from a small reader, since models do not
keep to Python's rules: JSON's literals, leading zeros, raw line ends and unescaped quotes in strings are all read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from turret.parsing import Marks, Reading, Source
from turret_parser_tool.calls import Calls
from turret_parser_tool.grammar import Around
from turret_parser_tool.tagged import Listed

__all__ = ["Pythonic"]

NAME = re.compile(r"[\w.\-]*")
BARE = re.compile(r"[^\s,()\[\]{}=:'\"]*")
TEXT = re.compile(r"[^\\'\"]*")
ENDS = re.compile(r"\s*(?:[,)\]}:]|\Z)")
NEXT_ARGUMENT = re.compile(r"\s*(?:\)|,\s*[A-Za-z_]\w*\s*=)")
LOOK_AHEAD = 48  # characters that tell whether a quote ends a string
MAX_DEPTH = 64
WORDS = {"True": "true", "true": "true", "False": "false", "false": "false", "None": "null", "null": "null"}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
HEX = {"x": 2, "u": 4, "U": 8}
CLOSERS = {"[": "]", "(": ")", "{": "}"}


@dataclass(frozen=True, slots=True)
class Pythonic:
    """A list of calls; without tags it begins with the name of a tool of the request.

    With `openers` calls stand between tags, in brackets or one to a line. With `or_json` the body may be a JSON list.
    """

    openers: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()
    bare: bool = True
    or_json: bool = False
    around: Around = field(default_factory=Around)

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        return (*self.openers, *self.closers, *self.around.marks())

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        starts = tuple(f"[{name}(" for name in calls.schemas) if self.bare else ()
        openers = Marks((*self.openers, *starts))
        while True:
            mark = yield from self.around.to_call(source, calls, openers)
            if mark is None:
                return
            if mark in starts:
                source.back(len(mark))
                mark = ""
            yield from self._section(source, calls, mark)

    def _section(self, source: Source, calls: Calls, mark: str) -> Reading[None]:
        source.keep()
        yield from source.space()
        if self.or_json and (yield from _json_list_ahead(source)):
            source.back(len(source.since_kept()))
            yield from Listed(self.openers, self.closers).list_at(source, calls, mark)
            return
        bracket = yield from source.is_next("[")
        before = calls.count
        closed = False
        while not closed:
            yield from source.space()
            ahead = yield from source.peek(1)
            if ahead == ",":
                source.take(1)
            elif bracket and ahead == "]":
                source.take(1)
                closed = True
            elif not (yield from self._call(source, calls)):
                break
            else:
                source.keep()
        yield from self._after(source, calls, mark if calls.count == before else None)

    def _after(self, source: Source, calls: Calls, unread: str | None) -> Reading[None]:
        """Behind the calls: the closer, or what turned out to be none of it."""
        rest = source.since_kept()
        if unread is not None:
            calls.content(unread + rest)
            return
        between = yield from source.space()
        if (yield from source.one_of(Marks(self.closers))) is None:
            calls.content(rest.lstrip("], \n") + between)

    def _call(self, source: Source, calls: Calls) -> Reading[bool]:
        name = yield from _word(source, NAME)
        yield from source.space()
        if not name or (yield from source.peek(1)) != "(":
            return False
        source.take(1)
        source.release()
        calls.start(name)
        if not (yield from _arguments(source, calls, calls.properties(name))):
            calls.cut()
            return False
        calls.end()
        return True


def _json_list_ahead(source: Source) -> Reading[bool]:
    size = 2
    while True:
        ahead = yield from source.peek(size)
        if ahead[:1] != "[":
            return False
        if ahead[1:].strip() or len(ahead) < size:
            return ahead[1:].strip()[:1] in ("{", "]")
        size += 1


def _arguments(source: Source, calls: Calls, properties: Sequence[str]) -> Reading[bool]:
    """Arguments up to the closing parenthesis, each told when it is complete; one without a name goes by its place."""
    told: list[str] = []
    while True:
        yield from source.space()
        ahead = yield from source.peek(1)
        if ahead in (")", ","):
            source.take(1)
            if ahead == ",":
                continue
            if told:
                calls.arguments("}")
            return True
        name, value = yield from _argument(source)
        if value is None:
            return False
        if name is None:
            place = len(told)
            name = properties[place] if place < len(properties) else f"arg{place}"
        if name not in told:
            calls.arguments(f"{', ' if told else '{'}{json.dumps(name, ensure_ascii=False)}: {value}")
            told.append(name)


def _argument(source: Source) -> Reading[tuple[str | None, str | None]]:
    """The name, if it has one, and the JSON text of the value, None if it is cut short."""
    ahead = yield from source.peek(1)
    if ahead in ("'", '"'):
        return None, (yield from _value(source, 0))
    word = yield from _word(source, BARE)
    space = yield from source.space()
    if word and (yield from source.is_next("=")):
        yield from source.space()
        return word, (yield from _value(source, 0))
    source.back(len(word) + len(space))
    return None, (yield from _value(source, 0))


def _word(source: Source, pattern: re.Pattern[str]) -> Reading[str]:
    parts: list[str] = []
    yield from source.run(pattern, parts.append)
    return "".join(parts)


def _value(source: Source, depth: int) -> Reading[str | None]:
    """The JSON text of one value; None if there is none or it is cut short."""
    ahead = yield from source.peek(1)
    if ahead in ("'", '"'):
        text = yield from _string(source)
        return None if text is None else json.dumps(text, ensure_ascii=False)
    if ahead in CLOSERS and ahead:
        return None if depth > MAX_DEPTH else (yield from _group(source, source.take(1), depth))
    word = yield from _word(source, BARE)
    if not word or not (yield from source.peek(1)):
        return None
    return WORDS.get(word) or _number(word) or json.dumps(word, ensure_ascii=False)


def _number(word: str) -> str | None:
    digits = word.replace("_", "")
    try:
        value = int(digits) if re.fullmatch(r"[+-]?\d{1,4000}", digits) else float(digits)
    except ValueError:
        return None
    return json.dumps(value) if value - value == 0 else None


def _group(source: Source, opener: str, depth: int) -> Reading[str | None]:
    """A list, tuple, set or dictionary whose opener was consumed."""
    items: list[str] = []
    pairs = False
    while True:
        yield from source.space()
        ahead = yield from source.peek(1)
        if ahead and ahead in (CLOSERS[opener], ","):
            source.take(1)
            if ahead == ",":
                continue
            inside = ", ".join(items)
            return f"{{{inside}}}" if pairs or (opener == "{" and not items) else f"[{inside}]"
        value = yield from _value(source, depth + 1)
        yield from source.space()
        if value is not None and opener == "{" and (yield from source.is_next(":")):
            yield from source.space()
            pairs = True
            key = value if value.startswith('"') else json.dumps(value)
            value = yield from _value(source, depth + 1)
            value = None if value is None else f"{key}: {value}"
        if value is None:
            return None
        items.append(value)


def _string(source: Source) -> Reading[str | None]:
    """A quoted string. A quote in it that nothing escapes belongs to it unless what follows can follow a string."""
    quote = source.take(1)
    if (yield from source.peek(2)) == quote * 2:
        ahead = yield from source.peek(3)
        if not ENDS.match(ahead[1:]) or ahead[2:3] == quote:
            source.take(2)
            return (yield from _long_string(source, quote * 3))
    parts: list[str] = []
    while True:
        yield from source.run(TEXT, parts.append)
        ahead = yield from source.peek(1)
        if not ahead:
            return None
        if ahead == "\\":
            if not (yield from _escape(source, parts, quote)):
                return "".join(parts)
            continue
        source.take(1)
        if ahead == quote and ENDS.match((yield from source.peek(LOOK_AHEAD))):
            return "".join(parts)
        parts.append(ahead)


def _long_string(source: Source, closer: str) -> Reading[str | None]:
    text, mark = yield from source.text_to(Marks((closer,)))
    return None if mark is None else text


def _escape(source: Source, parts: list[str], quote: str) -> Reading[bool]:
    """An escape; False if it was a backslash at the end of the string, which is over."""
    source.take(1)
    letter = yield from source.peek(1)
    if letter == quote:
        source.take(1)
        if NEXT_ARGUMENT.match((yield from source.peek(LOOK_AHEAD))):
            parts.append("\\")
            return False
        parts.append(quote)
    elif letter in HEX:
        ahead = yield from source.peek(1 + HEX[letter])
        try:
            parts.append(chr(int(ahead[1:], 16)))
            source.take(len(ahead))
        except (ValueError, OverflowError):
            parts.append("\\")
    elif letter in ESCAPES:
        parts.append(ESCAPES[source.take(1)])
    elif letter in ("\\", "'", '"'):
        parts.append(source.take(1))
    else:
        parts.append("\\")
    return True
