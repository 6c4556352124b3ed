"""How long blocks stay, told by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from turret.kv import BlockStays, KVCacheManager, Residency
from turret.messages import KVCacheConfig, KVGroup, KVGroupKind

BLOCK = 4
PROMPT = list(range(2 * BLOCK))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(clock: Clock) -> Callable[..., KVCacheManager]:
    """A pool of four blocks, of which all are watched."""

    def build(share: float = 1.0, num_blocks: int = 5) -> KVCacheManager:
        shape = KVCacheConfig(num_blocks=num_blocks, block_size=BLOCK, groups=[KVGroup(KVGroupKind.FULL, [0])])
        return KVCacheManager(shape, Residency(share, clock))

    return build


def compute(kv: KVCacheManager, name: str, tokens: list[int]) -> None:
    """A request that runs from its start, or from what the cache holds, to its end."""
    hit = kv.match(name, [*tokens, 0])
    kv.begin(name, hit)
    start = hit.num_tokens if hit is not None else 0
    assert kv.allocate(name, start, len(tokens) + 1) is not None
    kv.commit(name, len(tokens), [*tokens, 0])
    kv.free(name)


def test_a_block_is_told_when_it_is_taken_again(make, clock: Clock) -> None:
    kv = make()
    compute(kv, "a", PROMPT)
    assert kv.block_stays() == BlockStays(), "they are all still there"
    for now in (103.0, 107.0, 115.0):
        clock.now = now
        compute(kv, "a", PROMPT)  # two blocks of the prefix are found each time, a third is new
    seen = kv.block_stays()
    assert seen.reuse_gaps == [] and seen.lifetimes == [3.0, 4.0, 8.0] == seen.idle, "the third was taken each time"
    clock.now = 120.0
    compute(kv, "b", [50 + i for i in range(4 * BLOCK - 1)])  # takes all four: one never used, one unnamed, the prefix
    seen = kv.block_stays()
    assert sorted(seen.lifetimes) == [5.0, 20.0, 20.0] and sorted(seen.idle) == [5.0, 5.0, 5.0]
    assert seen.reuse_gaps == [4.0, 8.0] * 2


def test_what_is_told_is_told_once_and_gaps_of_old_uses_are_forgotten(make, clock: Clock) -> None:
    kv = make()
    for _ in range(10):
        compute(kv, "a", PROMPT)
        clock.now += 1
    kv.block_stays()
    compute(kv, "b", [50 + i for i in range(4 * BLOCK - 1)])
    assert kv.block_stays().reuse_gaps == [1.0] * 3 * 2
    assert kv.block_stays() == BlockStays()


def test_a_reset_is_no_eviction(make, clock: Clock) -> None:
    kv = make()
    compute(kv, "a", PROMPT)
    assert kv.reset_prefix_cache()
    compute(kv, "b", [50 + i for i in range(4 * BLOCK - 1)])
    assert kv.block_stays() == BlockStays()


def test_a_share_of_the_blocks_is_watched(make, clock: Clock) -> None:
    kv = make(share=0.25, num_blocks=2001)
    prompt = list(range(2000 * BLOCK - 1))
    for name in "ab":
        kv.begin(name, None)
        assert kv.allocate(name, 0, len(prompt)) is not None
        kv.free(name)
    assert 350 < len(kv.block_stays().lifetimes) < 650, "2000 draws of a quarter each"


def test_nothing_is_watched_unless_asked_for() -> None:
    shape = KVCacheConfig(num_blocks=5, block_size=BLOCK, groups=[KVGroup(KVGroupKind.FULL, [0])])
    kv = KVCacheManager(shape)
    for name in "ab":
        compute(kv, name, PROMPT)
    assert kv.block_stays() == BlockStays()
