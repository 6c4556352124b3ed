"""JSON as models write it: passed on as it arrives, valid at every moment it is looked at.

Owns the scanner. The text stays the model's own (spacing, escapes, digits); what would not be JSON is put right where
there is one reading: raw control characters and unknown escapes in strings, trailing commas, Python's three literals.
"""

from __future__ import annotations

import json
import re

from turret.parsing import Reading, Source, Write

__all__ = ["decoded", "json_string", "json_value", "quoted"]

PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
WORD = re.compile(r"[A-Za-z0-9+\-.]*")
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z")
HEX4 = re.compile(r"[0-9a-fA-F]{4}\Z")
LITERALS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
CLOSERS = {"{": "}", "[": "]"}


def quoted(text: str) -> str:
    """`text` as the inside of a JSON string; other than ASCII stays as it is."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def decoded(text: str) -> object:
    """The value of a JSON text that `json_value` accepted."""
    return json.loads(text)


def json_value(source: Source, write: Write) -> Reading[bool]:
    """Consume one value and tell its text; False where it stops being JSON (what was told is then a start of it)."""
    stack: list[str] = []
    held = ""  # white space and a comma, told only when something follows
    while True:
        held += yield from source.space()
        ahead = yield from source.peek(1)
        if stack and ahead == stack[-1]:
            write(held.replace(",", "") + source.take(1))
            stack.pop()
        else:
            if stack and stack[-1] == "}":
                key: list[str] = [held]
                if not (yield from _key(source, key.append)):
                    return False
                write("".join(key))
                ahead, held = (yield from source.peek(1)), ""
            if ahead in CLOSERS and ahead:
                write(held + source.take(1))
                stack.append(CLOSERS[ahead])
                held = ""
                continue
            if not (yield from _scalar(source, held, write)):
                return False
        if not stack:
            return True
        held = yield from source.space()
        ahead = yield from source.peek(1)
        if ahead == ",":
            held += source.take(1)
        elif ahead != stack[-1]:
            return False


def _key(source: Source, write: Write) -> Reading[bool]:
    if (yield from source.peek(1)) != '"' or not (yield from json_string(source, write)):
        return False
    write((yield from source.space()))
    if (yield from source.peek(1)) != ":":
        return False
    write(source.take(1))
    write((yield from source.space()))
    return True


def _scalar(source: Source, before: str, write: Write) -> Reading[bool]:
    if (yield from source.peek(1)) == '"':
        write(before)
        return (yield from json_string(source, write))
    word: list[str] = []
    yield from source.run(WORD, word.append)
    text = "".join(word)
    text = LITERALS.get(text, text if NUMBER.match(text) else "")
    if not text:
        source.back(sum(map(len, word)))
        return False
    write(before + text)
    return True


def json_string(source: Source, write: Write) -> Reading[bool]:
    """Consume a string, quotes included, and tell its text as it arrives; an escape is told whole."""
    write(source.take(1))
    while True:
        yield from source.run(PLAIN, write)
        ahead = yield from source.peek(1)
        if not ahead:
            return False
        if ahead == '"':
            write(source.take(1))
            return True
        if ahead != "\\":
            write(quoted(source.take(1)))
            continue
        if not (yield from _escape(source, write)):
            return False


def _escape(source: Source, write: Write) -> Reading[bool]:
    ahead = yield from source.peek(2)
    if len(ahead) < 2:
        return False
    if ahead[1] == "u":
        ahead = yield from source.peek(6)
        if len(ahead) < 6:
            return False
        write(source.take(6) if HEX4.match(ahead[2:]) else quoted(source.take(2)))
    elif ahead[1] in '"\\/bfnrt':
        write(source.take(2))
    elif ahead[1] == "'":
        source.take(2)
        write("'")
    else:
        source.take(1)
        write("\\\\")  # the character after it is read as any other
    return True
