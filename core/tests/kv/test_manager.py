"""Tables, prefix hits and windows of the block manager."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from turret.errors import ConfigError
from turret.kv import KVCacheManager
from turret.messages import KVCacheConfig, KVGroup, KVGroupKind

SIZE = 4


def manager(*windows: int | None, num_blocks: int = 64, **fields: object) -> KVCacheManager:
    groups = [KVGroup(KVGroupKind.SLIDING if w else KVGroupKind.FULL, [0], w) for w in windows]
    return KVCacheManager(KVCacheConfig(num_blocks=num_blocks, block_size=SIZE, groups=groups, **fields))


def run(kv: KVCacheManager, request_id: str, tokens: list[int], extra: tuple[str | None, ...] = ()) -> int:
    """Compute all tokens in one step; tokens that came from the cache."""
    hit = kv.match(request_id, tokens, extra)
    kv.begin(request_id, hit, extra, len(tokens))
    start = hit.num_tokens if hit else 0
    assert kv.allocate(request_id, start, len(tokens)) is not None
    kv.commit(request_id, len(tokens), tokens)
    return start


def test_a_prefix_is_found_once_it_was_committed_and_counts_in_tokens() -> None:
    kv = manager(None)
    tokens = list(range(12))
    kv.begin("a", None, (), 12)
    kv.allocate("a", 0, 12)
    assert kv.match("b", tokens) is None
    kv.commit("a", 9, tokens)
    hit = kv.match("b", tokens)
    assert hit is not None and hit.num_tokens == 8 and hit.block_ids == [kv.block_ids("a")[0][:2]]
    kv.begin("b", hit, (), 12)
    assert (kv.prefix_stats.queries, kv.prefix_stats.hits) == (24, 8)
    assert kv.num_free == kv.num_usable_blocks - 3


def test_a_full_hit_leaves_a_token_to_compute() -> None:
    kv = manager(None)
    run(kv, "a", list(range(12)))
    assert run(kv, "b", list(range(12))) == 8
    assert run(kv, "c", list(range(13))) == 12


def test_salt_and_adapter_keep_prefixes_apart() -> None:
    kv = manager(None)
    tokens = list(range(9))
    assert run(kv, "a", tokens, (None, "salt")) == 0
    assert run(kv, "b", tokens) == 0
    assert run(kv, "c", tokens, ("salt", None)) == 0
    assert run(kv, "d", tokens, (None, "salt")) == 8


def test_prefix_caching_can_be_off() -> None:
    kv = manager(None, enable_prefix_caching=False)
    run(kv, "a", list(range(12)))
    assert run(kv, "b", list(range(12))) == 0


def test_a_released_prompt_loses_its_tail_first_and_unnamed_blocks_before_it() -> None:
    kv = manager(None, num_blocks=6)
    tokens = list(range(14))  # three full blocks and one in part
    run(kv, "a", tokens)
    table = kv.block_ids("a")[0]
    kv.free("a")
    kv.begin("b", None)
    taken = kv.allocate("b", 0, 4 * SIZE)
    assert taken is not None and taken[0][0] == table[3] and taken[0][2:] == [table[2], table[1]]
    kv.free("b")
    assert run(kv, "c", tokens) == 4


def test_hits_leave_the_free_list_before_new_blocks_are_taken() -> None:
    kv = manager(None, num_blocks=5)
    tokens = list(range(16))
    run(kv, "a", tokens)
    table = kv.block_ids("a")[0]
    kv.free("a")
    assert run(kv, "b", [*tokens[:12], 99, 99, 99, 99]) == 12
    assert kv.block_ids("b")[0][:3] == table[:3]


def test_free_may_be_repeated_and_unknown_requests_are_nothing() -> None:
    kv = manager(None)
    run(kv, "a", list(range(12)))
    for _ in range(3):
        kv.free("a")
    kv.free("nobody")
    assert kv.num_free == kv.num_usable_blocks and kv.usage == 0


def test_reset_is_refused_while_blocks_are_held() -> None:
    kv = manager(None)
    run(kv, "a", list(range(12)))
    assert not kv.reset_prefix_cache()
    kv.free("a")
    assert kv.reset_prefix_cache()
    assert run(kv, "b", list(range(12))) == 0


def test_nothing_is_taken_when_the_pool_is_short() -> None:
    kv = manager(None, None, num_blocks=8)
    kv.begin("a", None)
    assert kv.allocate("a", 0, 13) is None
    assert kv.num_free == 7
    assert kv.room("a", 0, 13) == 12
    assert kv.allocate("a", 0, 12) is not None
    assert kv.num_free == 1


def test_decode_returns_pages_that_leave_the_window() -> None:
    window = 6
    kv = manager(None, window)
    tokens = [1] * 200
    kv.begin("a", None)
    for end in range(1, 200):
        kv.allocate("a", end - 1, end)
        kv.commit("a", end, tokens)
        full, sliding = kv.block_ids("a")
        assert 0 not in full and len(full) == len(sliding)
        first = max(0, end - window + 1) // SIZE  # the next query, at `end`, sees end - window + 1 and later
        assert [b == 0 for b in sliding] == [i < first for i in range(len(sliding))]
    assert kv.num_usable_blocks - kv.num_free <= 50 + 3


def test_chunked_prefill_returns_pages_that_leave_the_window() -> None:
    kv = manager(5, num_blocks=8)
    tokens = list(range(100))
    kv.begin("a", None)
    for start in range(0, 96, 8):
        assert kv.allocate("a", start, start + 8) is not None
        kv.commit("a", start + 8, tokens)
        assert kv.num_usable_blocks - kv.num_free <= 2


def test_short_memory_returns_pages_of_steps_in_flight_without_indexing_them() -> None:
    kv = manager(4, num_blocks=5)
    tokens = list(range(40))
    kv.begin("a", None)
    assert kv.allocate("a", 0, 12) is not None
    assert kv.allocate("a", 12, 24) is not None  # planned ahead: [0, 9) is out of the window of a query at 12
    assert kv.block_ids("a")[0][:2] == [0, 0]
    kv.commit("a", 12, tokens)
    assert kv.match("b", tokens[:9]) is None
    hit = kv.match("b", tokens[:13])
    assert hit is not None and hit.num_tokens == 12 and hit.block_ids[0][:2] == [0, 0]


def test_a_hit_must_hold_for_all_groups_at_once() -> None:
    kv = manager(None, 6)
    tokens = list(range(33))
    run(kv, "a", tokens)  # commit kept the window before 33 and named all pages before it let go of them
    kv.free("a")
    full, sliding = (kv._pool.index(g) for g in (0, 1))
    assert len(full) == len(sliding) == 8
    hit = kv.match("b", tokens)
    assert hit is not None and hit.num_tokens == 32
    assert [b == 0 for b in hit.block_ids[1]] == [True] * 6 + [False] * 2 and 0 not in hit.block_ids[0]
    digests = kv._sequences["b"].digests
    kv._pool._forget(sliding[digests[6]])
    shorter = kv.match("c", tokens)
    assert shorter is not None and shorter.num_tokens == 24
    kv._pool._forget(full[digests[3]])
    shortest = kv.match("d", tokens)
    assert shortest is not None and shortest.num_tokens == 12


@given(num_tokens=st.integers(1, 80), window=st.integers(1, 20), chunk=st.integers(1, 30))
def test_blocks_needed_is_what_a_request_at_most_holds(num_tokens: int, window: int, chunk: int) -> None:
    kv = manager(None, window)
    kv.begin("a", None)
    peak = 0
    for start in range(0, num_tokens, chunk):
        end = min(start + chunk, num_tokens)
        kv.allocate("a", start, end)
        peak = max(peak, kv.num_usable_blocks - kv.num_free)
        kv.commit("a", end, [1] * num_tokens)
    assert peak <= kv.blocks_needed(num_tokens, chunk)
    exact = -(-num_tokens // SIZE)
    assert kv.blocks_needed(num_tokens, chunk) <= exact + min(exact, -(-(window + chunk) // SIZE) + 1)


@given(num_blocks=st.integers(2, 40), windows=st.sampled_from([(None,), (None, 6), (5,), (None, None)]))
def test_the_longest_sequence_is_the_last_that_fits(num_blocks: int, windows: tuple[int | None, ...]) -> None:
    kv = manager(*windows, num_blocks=num_blocks)
    longest = kv.longest_sequence(1000)
    assert longest == 0 or kv.can_ever_fit(longest)
    assert longest == 1000 or not kv.can_ever_fit(longest + 1)


def test_what_a_request_still_asks_for() -> None:
    kv = manager(None)
    assert kv.outstanding("a", 40, 8) == 10
    kv.begin("a", None)
    kv.allocate("a", 0, 10)
    assert kv.outstanding("a", 40, 8) == 7
    assert kv.outstanding("a", 3, 8) == 0


@pytest.mark.parametrize(("num_blocks", "windows"), [(1, (None,)), (8, ())])
def test_a_pool_that_cannot_work_is_refused(num_blocks: int, windows: tuple[int | None, ...]) -> None:
    with pytest.raises(ConfigError):
        manager(*windows, num_blocks=num_blocks)
