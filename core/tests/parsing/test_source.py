"""Text that arrives in pieces: marks are found, starts of marks are held back, and cuts do not show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from turret.parsing import Marks, Reading, Source


def told(marks: Marks, pieces: Sequence[str], inside: bool = False) -> list[tuple[str, str | None]]:
    """(text, mark) up to each mark, and what is left at the end."""
    source, found = Source(), []

    def read() -> Reading[None]:
        while True:
            parts: list[str] = []
            mark = yield from source.flow(marks, parts.append, inside)
            found.append(("".join(parts), mark))
            if mark is None:
                return

    reading = read()
    for piece in pieces:
        source.add(piece)
        next(reading)
    source.ended = True
    next(reading, None)
    return found


def test_the_longest_of_those_that_begin_there_wins() -> None:
    marks = Marks(["<a", "<ab>", "b"])
    assert told(marks, ["x<ab>y"]) == [("x", "<ab>"), ("y", None)]
    assert told(marks, ["x<a", "c"]) == [("x", "<a"), ("c", None)]
    assert told(marks, ["x<", "a", "b"]) == [("x", "<a"), ("", "b"), ("", None)]


def test_an_earlier_start_is_waited_for() -> None:
    marks = Marks(["xabc", "ab"])
    assert told(marks, ["xab", "d"]) == [("x", "ab"), ("d", None)]
    assert told(marks, ["xab", "c"]) == [("", "xabc"), ("", None)]


def test_the_start_of_a_mark_at_the_end_is_text_unless_a_mark_was_due() -> None:
    assert told(Marks(["</end>"]), ["a</en"]) == [("a</en", None)]
    assert told(Marks(["</end>"]), ["a</en"], inside=True) == [("a", None)]


@given(st.text("ab<>/", max_size=30), st.lists(st.integers(0, 30), max_size=6), st.booleans())
def test_cuts_do_not_show(text: str, places: list[int], inside: bool) -> None:
    marks = Marks(["<a>", "</a>", "<ab", "b<"])
    edges = sorted({0, len(text), *(p for p in places if p < len(text))})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert told(marks, pieces, inside) == told(marks, list(text), inside) == told(marks, [text], inside)


def test_nothing_but_a_possible_mark_is_held_back() -> None:
    source, parts = Source(), []
    reading = source.flow(Marks(["</think>"]), parts.append)
    source.add("hello </th")
    next(reading)
    assert parts == ["hello "]
    source.add("e end")
    next(reading)
    assert "".join(parts) == "hello </the end"


def test_long_text_is_not_kept() -> None:
    source, parts = Source(), []
    reading = source.flow(Marks(["|"]), parts.append)
    for _ in range(300):
        source.add("x" * 100)
        next(reading)
    assert sum(map(len, parts)) == 30000 and len(source._text) < 10000
