"""What the scheduler plans, case by case, against the simulated worker: budget, order, memory, refusals."""

from __future__ import annotations

import pytest
from driving import finish, free_running, harness, sizes, steps

from turret.errors import ConfigError, RequestError
from turret.scheduler import SchedulerLimits

# -- budget and order ------------------------------------------------------------------------------------------------


def test_a_prompt_is_cut_to_the_budget_and_decodes_come_first() -> None:
    h = harness(max_num_batched_tokens=10)
    h.add(free_running("a", 4))
    assert steps(h, 2) == [{"a": 4}, {"a": 1}]
    h.add(free_running("b", 20))
    assert steps(h, 4) == [{"b": 9, "a": 1}, {"a": 1, "b": 9}, {"a": 1, "b": 2}, {"a": 1, "b": 1}]
    finish(h)


def test_no_more_requests_run_than_allowed() -> None:
    h = harness(max_num_seqs=2)
    for name in "abc":
        h.add(free_running(name, 3))
    assert steps(h, 1) == [{"a": 3, "b": 3}]
    assert h.scheduler.counts() == (2, 1)
    finish(h)


def test_priority_runs_lower_values_first_then_earlier_arrivals() -> None:
    h = harness(priority=True, max_num_seqs=1)
    for name, priority, arrival in [("low", 5, 1.0), ("late", 1, 3.0), ("early", 1, 2.0)]:
        h.add(free_running(name, 3, 2, priority=priority, arrival_time=arrival))
    order = [name for step in steps(h, 6) for name in step]
    assert list(dict.fromkeys(order)) == ["early", "late", "low"]


def test_without_chunking_a_prompt_goes_whole_and_blocks_those_behind() -> None:
    h = harness(max_num_batched_tokens=10, enable_chunked_prefill=False)
    for name, length in [("a", 6), ("b", 8), ("c", 2)]:
        h.add(free_running(name, length, 2))
    assert steps(h, 3) == [{"a": 6}, {"b": 8, "a": 1}, {"c": 2, "b": 1}]
    finish(h)


def test_without_chunking_a_preempted_request_still_comes_back() -> None:
    """Prompt and outputs together exceed the budget; the outputs may be cut."""
    h = harness(max_num_batched_tokens=12, enable_chunked_prefill=False)
    h.add(free_running("a", 10, 30))
    steps(h, 12)
    assert h.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert steps(h, 2) == [{"a": 12}, {"a": 10}]
    finish(h)


# -- long prompts ----------------------------------------------------------------------------------------------------


def test_long_prompts_leave_room_for_short_ones() -> None:
    h = harness(max_num_partial_prefills=3, max_long_partial_prefills=1, long_prefill_token_threshold=6)
    for name, length in [("long1", 30), ("long2", 30), ("short", 5)]:
        h.add(free_running(name, length))
    assert steps(h, 2) == [{"long1": 6, "short": 5}, {"long1": 6, "short": 1}]
    finish(h)


def test_two_long_prompts_at_once_when_allowed() -> None:
    h = harness(max_num_partial_prefills=2, max_long_partial_prefills=2, long_prefill_token_threshold=6)
    for name in ("long1", "long2", "long3"):
        h.add(free_running(name, 20))
    assert steps(h, 1) == [{"long1": 6, "long2": 6}]
    finish(h)


def test_the_threshold_is_four_percent_of_the_context_when_partial_prefills_ask_for_one() -> None:
    limits = {"max_num_batched_tokens": 512, "max_num_seqs": 8, "max_model_len": 1000}
    assert SchedulerLimits(**limits).long_prefill == 0
    assert SchedulerLimits(**limits, max_num_partial_prefills=2).long_prefill == 40
    assert SchedulerLimits(**limits, max_num_partial_prefills=2, long_prefill_token_threshold=7).long_prefill == 7
    assert SchedulerLimits(**limits, long_prefill_token_threshold=7, enable_chunked_prefill=False).long_prefill == 0


def test_a_short_prompt_waits_for_one_chunk_of_a_long_one_that_loses_nothing_alone() -> None:
    h = harness(max_num_partial_prefills=2, max_num_batched_tokens=12, max_model_len=1000)
    h.add(free_running("long", 60))
    assert steps(h, 2) == [{"long": 12}, {"long": 12}]
    h.add(free_running("other", 60))
    assert steps(h, 1) == [{"long": 12}]  # nothing short waits: the whole step is the first prompt's
    h.add(free_running("short", 5))
    assert steps(h, 1) == [{"long": 6, "short": 5}]
    assert steps(h, 1) == [{"long": 11, "short": 1}]
    finish(h)


@pytest.mark.parametrize("num_decoding", [0, 3])
@pytest.mark.parametrize("threshold", [0, 5])
@pytest.mark.parametrize("moment", range(12))
def test_whenever_a_short_prompt_comes_it_waits_for_one_chunk_though_steps_are_planned_ahead(
    moment: int, threshold: int, num_decoding: int
) -> None:
    chunk = threshold or 12
    h = harness(max_num_partial_prefills=2, max_num_batched_tokens=12, max_model_len=1000, num_blocks=200,
                async_depth=2, long_prefill_token_threshold=threshold)
    for number in range(num_decoding):
        h.add(free_running(f"decoding{number}", 2, 40))
    h.add(free_running("long", 90))
    for turn in range(moment):  # between any two calls of the engine
        if turn % 2 == 0:
            while h.plan():
                pass
        else:
            h.commit()
    before = len(h.plans) - len(h.worker.queue)
    h.add(free_running("short", 3))
    while not any("short" in sizes(plan) for plan in h.plans):
        h.step()
    waited_for = [sizes(plan).get("long", 0) for plan in h.plans[before:] if "short" not in sizes(plan)]
    assert sum(waited_for) <= chunk
    finish(h)


def test_answers_are_still_planned_ahead_and_so_is_what_follows_the_last_chunk() -> None:
    h = harness(max_num_batched_tokens=12, max_model_len=1000, async_depth=2)
    h.add(free_running("long", 30, 6))
    in_flight = []
    while h.scheduler.has_unfinished:
        while h.plan():
            pass
        in_flight.append(len(h.worker.queue))
        h.commit()
    assert in_flight[:3] == [1, 1, 2] and set(in_flight[2:-1]) == {2}
    finish(h)


# -- memory ----------------------------------------------------------------------------------------------------------


def test_the_last_to_arrive_is_preempted_and_nothing_is_admitted_in_that_step() -> None:
    h = harness(num_blocks=8, max_num_seqs=2)
    for name in "ab":
        h.add(free_running(name, 7, 17))
    h.add(free_running("c", 1, 1))
    before = 0
    while h.scheduler.stats().preemptions_total == 0:
        before = len(h.plans)
        h.step()
    plan = h.plans[before]
    assert plan.removed == ["b"] and not plan.new and list(sizes(plan)) == ["a"]
    finish(h)


def test_the_worst_priority_is_preempted() -> None:
    h = harness(num_blocks=8, priority=True, max_num_seqs=2)
    h.add(free_running("worse", 7, 17, priority=2))
    h.step()
    h.add(free_running("better", 7, 17, priority=1))
    while h.scheduler.stats().preemptions_total == 0:
        h.step()
    assert "worse" in h.plans[-1].removed
    finish(h)


def test_a_chunk_is_cut_to_what_memory_is_left() -> None:
    """A window that needs few blocks, and a step that would need more than there are."""
    h = harness(num_blocks=5, windows=(6,), max_num_batched_tokens=32)
    h.add(free_running("a", 40, 4))
    assert steps(h, 2) == [{"a": 16}, {"a": 8}]
    finish(h)
    assert h.scheduler.stats().preemptions_total == 0


def test_a_newcomer_waits_until_its_whole_prompt_has_room() -> None:
    h = harness(num_blocks=11, max_num_batched_tokens=8)
    h.add(free_running("a", 16, 4))
    h.add(free_running("b", 24, 4))
    while h.scheduler.counts()[0] < 2 and h.scheduler.has_unfinished and len(h.plans) < 6:
        h.step()
    assert h.scheduler.stats().preemptions_total == 0
    finish(h)
    assert h.scheduler.stats().preemptions_total == 0


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prompt", "max_tokens", "fields", "sentence"), [
    (0, 1, {}, "prompt is empty"),
    (64, 1, {}, "64 tokens, but the context holds 64"),
    (20, 10, {"enable_chunked_prefill": False}, "20 tokens, but a step holds 16"),
    (30, 20, {"num_blocks": 10}, "13 KV blocks of 4 tokens for 30 prompt tokens and up to 20 output tokens, but .* 9"),
])
def test_what_can_never_run_is_refused_with_numbers(
    prompt: int, max_tokens: int, fields: dict[str, object], sentence: str
) -> None:
    h = harness(**fields)
    request = free_running("a", prompt, max_tokens)
    with pytest.raises(RequestError, match=sentence):
        h.scheduler.check(request)
    with pytest.raises(RequestError, match=sentence):
        h.scheduler.add(request)
    assert not h.scheduler.has_unfinished and h.scheduler.counts() == (0, 0)


def test_what_just_fits_runs() -> None:
    h = harness(num_blocks=13)
    h.add(free_running("a", 30, 19))  # 48 tokens are stored: 12 blocks
    finish(h)


def test_an_id_that_is_in_use_is_refused_and_free_again_afterwards() -> None:
    h = harness()
    h.add(free_running("a", 3, 2))
    with pytest.raises(RequestError, match="'a' is already here"):
        h.scheduler.add(free_running("a", 3, 2))
    h.abort(["a"])
    h.scheduler.add(free_running("a", 3, 2))


@pytest.mark.parametrize("name", ["max_num_batched_tokens", "max_num_seqs", "async_depth"])
def test_limits_are_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", "-")):
        harness(**{name: 0})
