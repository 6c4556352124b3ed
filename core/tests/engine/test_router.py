"""The router's rule, alone and over a simulated set of replicas."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turret.engine.router import LEVEL_WORK, OPEN_WORK, choose_engine
from turret.errors import EngineDeadError
from turret.messages import Request
from turret.sampling import SamplingParams

BLOCK = 16


def request(prompt: list[int], salt: str | None = None) -> Request:
    return Request(
        request_id="r", prompt_token_ids=prompt, sampling=SamplingParams(), max_tokens=1, seed=0, cache_salt=salt
    )


prompts = st.lists(st.integers(0, 50), min_size=1, max_size=40)
works = st.lists(st.none() | st.integers(0, 4000), min_size=1, max_size=8)


@given(works, prompts)
def test_never_one_that_is_gone_and_never_one_far_from_the_least(work: list[int | None], prompt: list[int]) -> None:
    alive = [w for w in work if w is not None]
    if not alive:
        with pytest.raises(EngineDeadError):
            choose_engine(work, request(prompt), BLOCK)
        return
    chosen = work[choose_engine(work, request(prompt), BLOCK)]
    assert chosen is not None
    assert chosen <= min(alive) + (LEVEL_WORK if len(prompt) >= BLOCK else 0)


@given(prompts, st.integers(2, 8), st.integers(0, 7))
def test_the_loss_of_one_moves_only_what_it_had(prompt: list[int], size: int, lost: int) -> None:
    level: list[int | None] = [0] * size
    before = choose_engine(level, request(prompt), BLOCK)
    level[lost % size] = None
    after = choose_engine(level, request(prompt), BLOCK)
    assert after == before or before == lost % size


def test_equal_beginnings_meet_and_others_are_spread() -> None:
    level: list[int | None] = [0] * 4
    head = list(range(BLOCK))
    assert len({choose_engine(level, request([*head, i, i]), BLOCK) for i in range(50)}) == 1
    chosen = Counter(choose_engine(level, request([i] * BLOCK), BLOCK) for i in range(400))
    assert min(chosen.values()) > 50, chosen
    salted = {choose_engine(level, request(head, str(i)), BLOCK) for i in range(40)}
    assert len(salted) == 4, "a cache salt separates what it keeps apart in the cache"


class Simulated:
    """Replicas that each finish their oldest request after so many ticks; work is counted as the fleet counts it."""

    def __init__(self, size: int) -> None:
        self.work: list[int | None] = [0] * size
        self.open: list[list[tuple[int, int]]] = [[] for _ in range(size)]

    def submit(self, prompt: list[int], ticks: int) -> int:
        index = choose_engine(self.work, request(prompt), BLOCK)
        weight = OPEN_WORK + len(prompt)
        self.open[index].append((ticks, weight))
        self.work[index] = (self.work[index] or 0) + weight
        return index

    def tick(self) -> None:
        for index, requests in enumerate(self.open):
            left = [(ticks - 1, weight) for ticks, weight in requests]
            self.open[index] = [(ticks, weight) for ticks, weight in left if ticks > 0]
            if self.work[index] is not None:
                self.work[index] = sum(weight for _, weight in self.open[index])

    def kill(self, index: int) -> None:
        self.work[index] = None
        self.open[index] = []


events = st.lists(
    st.tuples(st.sampled_from(["submit", "submit", "submit", "tick", "kill"]), prompts, st.integers(1, 30)),
    max_size=120,
)


@settings(max_examples=60)
@given(st.integers(2, 6), events)
def test_a_set_of_replicas_stays_level_whatever_comes(size: int, script: list[tuple[str, list[int], int]]) -> None:
    """The difference never passes the slack and one request, however alike the prompts are, unless requests end."""
    replicas, longest = Simulated(size), 0
    ended = False
    for what, prompt, number in script:
        if what == "submit":
            if any(w is not None for w in replicas.work):
                index = replicas.submit(prompt, number)
                assert replicas.work[index] is not None
                longest = max(longest, OPEN_WORK + len(prompt))
        elif what == "tick":
            replicas.tick()
            ended = True
        else:
            replicas.kill(number % size)
        alive = [w for w in replicas.work if w is not None]
        if alive and not ended:
            assert max(alive) - min(alive) <= LEVEL_WORK + longest
