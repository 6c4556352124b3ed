"""The input of a custom tool, read out of a function's arguments while they arrive.

Owns: which part of JSON's text is certain. Knows nothing of items.
"""

from __future__ import annotations

import json
import re

__all__ = ["InputReader"]

_OPENING = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_CERTAIN = re.compile(
    r"(?:[^\"\\]|\\[\"\\/bfnrt]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4})+"
)
"""Characters of a JSON string up to an escape, or a pair of them, that is not whole yet."""


class InputReader:
    """`{"input": "..."}` as it grows. `text` is the input so far; arguments of another shape are the input as they
    stand, known at the end."""

    def __init__(self) -> None:
        self.text = ""
        self._arguments = ""
        self._place: int | None = None

    def feed(self, arguments: str) -> str:
        """What more of the input is certain."""
        self._arguments += arguments
        if self._place is None:
            opening = _OPENING.match(self._arguments)
            if opening is None:
                return ""
            self._place = opening.end()
        found = _CERTAIN.match(self._arguments, self._place)
        if found is None:
            return ""
        self._place = found.end()
        new: str = json.loads(f'"{found[0]}"', strict=False)
        self.text += new
        return new

    def finish(self) -> str:
        """What is left when no more comes."""
        if self._place is not None or not self._arguments:
            return ""
        self.text = self._arguments
        return self.text
