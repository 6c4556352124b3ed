"""Calls as tags whose names are the keys, objects nested as tags: MiniMax-M3.

Owns the grammar `Nested`. A token stands before every tag, so text that looks like a tag is text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from turret.parsing import Marks, Reading, Source
from turret_parser_tool.calls import Calls
from turret_parser_tool.grammar import Around, is_name
from turret_parser_tool.parameters import tag_header
from turret_parser_tool.typed import ArgumentWriter
from turret_parser_tool.values import is_text, json_of, property_schema

__all__ = ["Nested"]

ITEM = "item"
MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Nested:
    """`token` stands before each tag."""

    token: str
    around: Around = field(default_factory=Around)

    def marks(self) -> Sequence[str]:
        """See `Grammar`."""
        return (self.token, *self.around.marks())

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """See `Grammar`."""
        openers = Marks((f"{self.token}<invoke", f"{self.token}<tool_call>", f"{self.token}</tool_call>"))
        while True:
            mark = yield from self.around.to_call(source, calls, openers)
            if mark is None:
                return
            if mark.endswith("<invoke"):
                yield from self._call(source, calls, mark)
            else:
                calls.border()

    def _call(self, source: Source, calls: Calls, mark: str) -> Reading[None]:
        source.keep()
        header, end = yield from source.text_to(Marks((">",)))
        name, _ = tag_header(header)
        if end is None or not is_name(name):
            calls.content(mark + source.since_kept())
            return
        source.release()
        calls.start(name)
        writer = ArgumentWriter(calls, name)
        while True:
            _, tag = yield from source.text_to(Marks((f"{self.token}</invoke>", f"{self.token}<")))
            if tag is None or (not tag.endswith(">") and not (yield from self._parameter(source, calls, name, writer))):
                calls.cut()
                return
            if tag.endswith(">"):
                writer.close()
                calls.end()
                return

    def _parameter(self, source: Source, calls: Calls, tool: str, writer: ArgumentWriter) -> Reading[bool]:
        key, end = yield from source.text_to(Marks((">",)))
        if end is None:
            return False
        if key.startswith("/"):
            return True  # a closer of nothing
        schema = property_schema(calls.schemas.get(tool, {}), key)
        if is_text(schema):
            value = writer.value(key)
            if (yield from source.flow(Marks((f"{self.token}</{key}>",)), value.add, inside=True)) is None:
                return False
            value.close()
            return True
        text = yield from self._element(source, schema, 0)
        if text is None:
            return False
        writer.whole(key, text)
        return True

    def _element(self, source: Source, schema: object, depth: int) -> Reading[str | None]:
        """The JSON text of an element whose opener was consumed, up to its closer; None if it is cut short."""
        known = schema if isinstance(schema, dict) else None
        text, tag = yield from source.text_to(Marks((f"{self.token}<",)))
        children: list[tuple[str, str]] = []
        while True:
            if tag is None or depth > MAX_DEPTH:
                return None
            name, end = yield from source.text_to(Marks((">",)))
            if end is None:
                return None
            if name.startswith("/"):
                return _joined(children) if children else json_of(text, known)
            child = yield from self._element(source, _child(known, name), depth + 1)
            if child is None:
                return None
            children.append((name, child))
            _, tag = yield from source.text_to(Marks((f"{self.token}<",)))


def _child(schema: dict[str, object] | None, name: str) -> object:
    if schema is None:
        return None
    return schema.get("items") if name == ITEM else property_schema(schema, name)


def _joined(children: Sequence[tuple[str, str]]) -> str:
    if all(name == ITEM for name, _ in children):
        return f"[{', '.join(text for _, text in children)}]"
    return (
        f"{{{', '.join(f'{json.dumps(name, ensure_ascii=False)}: {text}' for name, text in dict(children).items())}}}"
    )
