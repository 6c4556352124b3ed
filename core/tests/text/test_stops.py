"""Stop strings: whatever the cut of the text, the result is that of watching it character by character."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from turret.text import StopMatcher

LETTERS = st.text("abAB", max_size=40)
STOPS = st.lists(st.text("abAB", min_size=1, max_size=6), min_size=1, max_size=4)


def plainly(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The definition: the stop string that is complete first, the longest of those; the text before (or through) it."""
    for end in range(1, len(text) + 1):
        found = [s for s in stops if text[:end].endswith(s)]
        if found:
            stop = max(found, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


def watched(pieces: list[str], stops: list[str], include: bool) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, include)
    shown = ""
    for piece in pieces:
        match = matcher.push(piece)
        shown += match.text
        if match.stop is not None:
            return shown, match.stop
    return shown + matcher.flush(), None


@settings(max_examples=500, deadline=None)
@given(LETTERS, STOPS, st.lists(st.integers(0, 40), max_size=8), st.booleans())
def test_any_cut_gives_the_same(text: str, stops: list[str], points: list[int], include: bool) -> None:
    edges = [0, *sorted(min(p, len(text)) for p in points), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    expected = plainly(text, stops, include)
    assert watched(pieces, stops, include) == expected
    assert watched(list(text), stops, include) == expected
    assert watched([text], stops, include) == expected


@settings(max_examples=300, deadline=None)
@given(LETTERS, STOPS)
def test_exactly_what_could_become_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    seen = shown = ""
    for char in text:
        match = matcher.push(char)
        if match.stop is not None:
            return
        seen, shown = seen + char, shown + match.text
        held = max((k for s in stops for k in range(1, len(s)) if seen.endswith(s[:k])), default=0)
        assert shown == seen[: len(seen) - held]


@settings(max_examples=300, deadline=None)
@given(LETTERS, STOPS, st.integers(0, 40))
def test_unarmed_text_may_complete_stop_strings(text: str, stops: list[str], armed_from: int) -> None:
    """Until armed, completed strings pass; after, one that began before and ends after still counts."""
    matcher = StopMatcher(stops)
    shown, stop = "", None
    for at, char in enumerate(text):
        match = matcher.push(char, armed=at >= armed_from)
        shown += match.text
        stop = match.stop
        if stop is not None:
            break
    shown += matcher.flush()
    for end in range(armed_from + 1, len(text) + 1):
        found = [s for s in stops if text[:end].endswith(s)]
        if found:
            assert stop == max(found, key=len)
            assert shown == text[: end - len(stop)]
            return
    assert (shown, stop) == (text, None)


def test_long_stop_strings_cost_linear_time() -> None:
    """Two hundred thousand characters against a stop string that nearly matches everywhere: quadratic would not end."""
    matcher = StopMatcher(["a" * 20_000 + "b"])
    shown = "".join(matcher.push("a" * 100).text for _ in range(2_000)) + matcher.flush()
    assert shown == "a" * 200_000


def test_many_stop_strings_cost_no_more_than_one() -> None:
    """Five thousand strings against text that always begins one of them."""
    matcher = StopMatcher([f"ab{i}c" for i in range(5_000)])
    text = "ab4999x" * 20_000
    assert matcher.push(text).text + matcher.flush() == text
    assert matcher.push("ab77c").stop == "ab77c"
