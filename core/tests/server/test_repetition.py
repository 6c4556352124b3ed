"""Sequences that go round in circles: found as soon as they do, whatever the cut."""

from __future__ import annotations

import itertools

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from turret.sampling import RepetitionDetection
from turret.server.repetition import RepetitionDetector


def plainly(tokens: list[int], rule: RepetitionDetection) -> int | None:
    """The definition: the shortest beginning whose end is one pattern again and again."""
    for end in range(1, len(tokens) + 1):
        for size in range(max(1, rule.min_pattern_size), rule.max_pattern_size + 1):
            span = tokens[max(0, end - size * rule.min_count) : end]
            if len(span) == size * rule.min_count and span == span[:size] * rule.min_count:
                return end
    return None


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.integers(0, 2), max_size=40), st.integers(1, 5), st.integers(0, 5), st.integers(2, 4),
    st.lists(st.integers(0, 40), max_size=4),
)  # fmt: skip
def test_found_as_soon_as_it_is_there(tokens, longest, shortest, count, points):
    rule = RepetitionDetection(max_pattern_size=longest, min_pattern_size=min(shortest, longest), min_count=count)
    detector, at = RepetitionDetector(rule), 0
    edges = [0, *sorted(min(p, len(tokens)) for p in points), len(tokens)]
    for start, end in itertools.pairwise(edges):
        found = detector.find(tokens[start:end])
        if found is not None:
            at = start + found
            break
    else:
        at = None
    assert at == plainly(tokens, rule)


def test_a_choice_that_repeats_itself_ends(tiny):
    """Among four hundred tokens of a vocabulary of 94 some token comes twice in a row."""
    body = {"prompt": "Hello", "max_tokens": 400, "return_token_ids": True}
    plain = httpx.post(f"{tiny.url}/v1/completions", json=body).json()["choices"][0]
    rule = {"max_pattern_size": 20, "min_count": 2}
    watched = httpx.post(f"{tiny.url}/v1/completions", json={**body, "repetition_detection": rule}).json()["choices"][0]
    end = plainly(plain["token_ids"], RepetitionDetection(**rule))
    assert end is not None and watched["token_ids"] == plain["token_ids"][:end]
    assert watched["finish_reason"] == "repetition" and watched["stop_reason"] is None
    assert watched["text"] == plain["text"][: len(watched["text"])] and len(watched["text"]) == end
