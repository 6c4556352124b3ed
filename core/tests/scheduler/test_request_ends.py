"""How requests end and what their events say, case by case, against the simulated worker."""

from __future__ import annotations

import pytest
from driving import finish, finish_rest, free_running, harness, steps
from simulated_worker import EOS, VOCAB, Harness, expected_answer, make_request, values

from turret.errors import EngineError, PluginError
from turret.messages import FinishReason, RequestResult, StepResult, TokenLogprobs
from turret.sampling import SamplingParams
from turret.scheduler import FcfsPolicy, Scheduler

# -- stop rules ------------------------------------------------------------------------------------------------------


def stop_case(**fields: object) -> Harness:
    h = harness()
    h.add(make_request("a", [3, 4, 5], 40, **fields))
    h.drain()
    return h


def test_end_of_sequence_stops_without_a_stop_reason() -> None:
    h = stop_case(eos_token_ids=list(range(VOCAB)), stop_token_ids=list(range(VOCAB)))
    end = h.answers["a"].end
    assert (end.finish_reason, end.stop_reason, len(h.answers["a"].tokens)) == (FinishReason.STOP, None, 1)


def test_a_stop_token_is_the_stop_reason_even_when_end_of_sequence_is_ignored() -> None:
    h = stop_case(eos_token_ids=list(range(VOCAB)), stop_token_ids=list(range(VOCAB)), ignore_eos=True)
    end = h.answers["a"].end
    assert end.finish_reason is FinishReason.STOP and end.stop_reason == h.answers["a"].tokens[-1]


def test_the_token_limit_and_the_context_end_by_length() -> None:
    h = harness(max_model_len=12)
    h.add(free_running("a", 3, 4))
    h.add(free_running("b", 3, 40))
    h.drain()
    assert {i: (len(a.tokens), a.end.finish_reason) for i, a in h.answers.items()} == {
        "a": (4, FinishReason.LENGTH), "b": (9, FinishReason.LENGTH),
    }


# -- planning ahead --------------------------------------------------------------------------------------------------


def long_answer(h: Harness, at_least: int) -> str:
    """Add a request whose answer runs into end-of-sequence after some tokens."""
    for seed in range(1000):
        request = make_request("eos", [3, 4, 5], 40, seed=seed, stop_token_ids=[])
        tokens, reason, _ = expected_answer(request, h.limits.max_model_len)
        if reason is FinishReason.STOP and len(tokens) >= at_least and tokens[-1] == EOS:
            h.add(request)
            return request.request_id
    raise AssertionError("no such seed")


def test_a_step_is_planned_before_the_last_one_is_known_and_dropped_when_that_one_was_the_end() -> None:
    h = harness(async_depth=2)
    name = long_answer(h, 4)
    expected, _, _ = expected_answer(h.requests[name], 64)
    h.drain()
    assert h.answers[name].tokens == expected
    assert len(h.plans) == len(expected) + 1  # one step for nothing: it was planned before the end was known
    assert h.scheduler.num_in_flight == 0
    h.check_idle()


def test_no_step_is_planned_past_the_token_limit() -> None:
    h = harness(async_depth=2)
    h.add(free_running("a", 3, 5))
    finish(h)
    assert len(h.plans) == 5


def test_planning_stops_at_the_depth() -> None:
    h = harness(async_depth=2)
    h.add(free_running("a", 3, 5))
    assert h.plan() and h.plan() and not h.plan()
    assert h.scheduler.num_in_flight == 2
    finish(h)


def test_a_result_out_of_turn_is_an_engine_error() -> None:
    h = harness(async_depth=2)
    h.add(free_running("a", 3, 5))
    plan = h.scheduler.plan()
    with pytest.raises(EngineError, match="answered step 7, but the oldest step in flight is 1"):
        h.scheduler.commit(StepResult(step_id=7))
    with pytest.raises(EngineError, match="not for the requests of its plan"):
        h.scheduler.commit(StepResult(step_id=plan.step_id, results=[RequestResult(request_id="b", token_ids=[1])]))
    with pytest.raises(EngineError, match="sampled no token for request 'a'"):
        h.scheduler.commit(StepResult(step_id=plan.step_id, results=[RequestResult(request_id="a")]))


# -- abort, errors, shutdown -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
def test_abort_is_exact(depth: int) -> None:
    h = harness(async_depth=depth)
    for name in "ab":
        h.add(free_running(name, 9, 20))
    steps(h, 3)
    h.plan()
    in_flight = len(h.worker.queue)
    free = h.kv.num_free
    h.abort(["a"])
    assert h.answers["a"].end.finish_reason is FinishReason.ABORT
    assert h.kv.num_free > free
    given = len(h.answers["a"].tokens)
    steps(h, 3)
    assert len(h.answers["a"].tokens) == given
    assert [p.removed for p in h.plans[-3:]].count(["a"]) == 1 and in_flight == depth
    assert "a" not in h.worker.rows
    h.abort(["a", "never"])
    finish(h)


def test_aborting_a_waiting_request_tells_the_worker_nothing() -> None:
    h = harness(max_num_seqs=1)
    h.add(free_running("a", 3, 3))
    h.step()
    h.add(free_running("b", 3, 3))
    h.step()
    h.abort(["b"])
    finish(h)
    assert all("b" not in p.removed for p in h.plans)


def test_an_error_ends_its_own_request_only() -> None:
    h = harness(async_depth=2)
    for name in "ab":
        h.add(free_running(name, 3, 9))
    steps(h, 3)
    h.worker.failing.add("a")
    finish(h)
    assert (h.answers["a"].end.finish_reason, h.answers["a"].end.error) == (FinishReason.ERROR, "out of luck")
    assert h.answers["b"].end.finish_reason is FinishReason.LENGTH


def test_all_can_be_ended_at_once_and_late_results_are_dropped() -> None:
    h = harness(max_num_seqs=2, async_depth=2)
    for name in "abc":
        h.add(free_running(name, 3, 9))
    steps(h, 2)
    h.plan()
    h.take(h.scheduler.finish_all(FinishReason.ERROR, "the end"))
    assert not h.live() and {a.end.error for a in h.answers.values()} == {"the end"}
    while h.commit():
        pass
    h.check_idle()


# -- what the events say ---------------------------------------------------------------------------------------------


def test_cached_tokens_are_those_of_the_first_scheduling() -> None:
    h = harness(max_num_batched_tokens=32)
    prompt = [2 + i % 9 for i in range(14)]
    for name in ("a", "b"):
        h.add(make_request(name, prompt, 6, ignore_eos=True, stop_token_ids=[]))
        events = []
        take = h.take
        h.take = lambda new, take=take, events=events: (events.extend(new), take(new))
        h.drain()
        h.take = take
        assert events[0].num_cached_tokens == {"a": 0, "b": 12}[name]
        assert events[0].first_scheduled is not None
        assert all(e.first_scheduled is None and e.num_cached_tokens == 0 for e in events[1:])
    stats = h.scheduler.stats()
    assert (stats.prefix_cache_queries_total, stats.prefix_cache_hits_total) == (28, 12)
    assert (stats.prompt_tokens_total, stats.generation_tokens_total) == (28, 12)
    assert stats.step_tokens == [14, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1]
    assert h.scheduler.stats().step_tokens == []


def logprob(token: int) -> TokenLogprobs:
    return TokenLogprobs(token, -1.0, 1, [token], [-1.0])


def test_prompt_logprobs_are_gathered_over_chunks_and_come_with_the_first_token() -> None:
    h = harness(max_num_batched_tokens=4)
    sampling = SamplingParams(max_tokens=2, prompt_logprobs=0)
    prompt = [2, 3, 4, 5, 6, 7]
    h.add(make_request("warm", prompt, 1))
    h.drain()
    request = make_request("a", prompt, 2, stop_token_ids=[], eos_token_ids=[])
    scheduler: Scheduler = h.scheduler
    scheduler.add(type(request)(**{f: getattr(request, f) for f in request.__struct_fields__} | {"sampling": sampling}))

    first = scheduler.plan()
    assert first.new[0].num_computed_tokens == 0, "a prefix hit would leave prompt tokens without log-probabilities"
    parts = [logprob(t) for t in prompt[1:5]]
    assert not scheduler.commit(_one(first.step_id, RequestResult(request_id="a", prompt_logprobs=parts)))
    second = scheduler.plan()
    (event,) = scheduler.commit(
        _one(second.step_id, RequestResult(request_id="a", token_ids=[8], prompt_logprobs=[logprob(7)]))
    )
    assert [p.token_id for p in event.prompt_logprobs] == prompt[1:]
    (last,) = scheduler.commit(_one(scheduler.plan().step_id, RequestResult(request_id="a", token_ids=[8])))
    assert last.prompt_logprobs is None and last.finish_reason is FinishReason.LENGTH


def test_prompt_logprobs_survive_an_answer_of_one_token() -> None:
    h = harness()
    sampling = SamplingParams(max_tokens=1, prompt_logprobs=0)
    request = make_request("a", [2, 3], 1)
    h.scheduler.add(type(request)(**{f: getattr(request, f) for f in request.__struct_fields__}
                                  | {"sampling": sampling}))
    plan = h.scheduler.plan()
    (event,) = h.scheduler.commit(
        _one(plan.step_id, RequestResult(request_id="a", token_ids=[8], prompt_logprobs=[logprob(3)]))
    )
    assert event.finish_reason is FinishReason.LENGTH and [p.token_id for p in event.prompt_logprobs] == [3]


def _one(step_id: int, result: RequestResult) -> StepResult:
    return StepResult(step_id=step_id, results=[result])


# -- policies that fail ----------------------------------------------------------------------------------------------


class Broken(FcfsPolicy):
    name = "broken"

    def __init__(self, method: str) -> None:
        setattr(self, method, self.fail)

    def fail(self, *_: object) -> object:
        raise ValueError("no idea")


def test_a_policy_that_cannot_rank_refuses_the_request_by_name() -> None:
    h = harness()
    scheduler = Scheduler(h.limits, h.kv, Broken("sort_key"))
    with pytest.raises(PluginError, match="'broken' failed in sort_key for request 'a': ValueError: no idea"):
        scheduler.add(free_running("a", 3))
    assert not scheduler.has_unfinished


def test_a_policy_that_cannot_choose_is_named_and_all_can_still_be_ended() -> None:
    h = harness(num_blocks=9, max_num_seqs=2)
    h.scheduler = Scheduler(h.limits, h.kv, Broken("pick_victim"))
    for name, length in [("a", 8), ("b", 7)]:
        h.add(free_running(name, length, 17))
    with pytest.raises(PluginError, match="'broken' failed in pick_victim: ValueError"):
        h.drain()
    assert len(h.scheduler.finish_all(FinishReason.ERROR, "x")) == 2
    assert h.kv.num_free == h.kv.num_usable_blocks


def test_the_simulated_worker_notices_a_wrong_page() -> None:
    """The oracle itself: a page that changes under a request is seen at the next read."""
    h = harness()
    h.add(free_running("a", 9, 9))
    steps(h, 2)
    assert values([1], h.requests["a"]) != values([2], h.requests["a"])
    block = h.worker.rows["a"].tables[0][0]
    h.worker.pages[block][0] = (0, -1)
    with pytest.raises(AssertionError, match="foreign page at 0"):
        h.step()


# -- deadlines of the queue ------------------------------------------------------------------------------------------


def test_a_request_that_was_never_planned_ends_at_its_deadline() -> None:
    h = harness(max_num_seqs=1)
    h.add(free_running("a", 4, queue_deadline=1.0))
    h.add(free_running("b", 4, queue_deadline=2.0))
    h.add(free_running("c", 4, queue_deadline=4e9))
    h.add(free_running("d", 4))
    assert [e.request_id for e in h.scheduler.expire()] == ["a", "b"]
    assert steps(h, 1) == [{"c": 4}]
    finish_rest(h, "a", "b")


def test_a_request_that_began_outlives_its_deadline_even_when_preempted(monkeypatch: pytest.MonkeyPatch) -> None:
    h = harness()
    h.add(free_running("a", 4, queue_deadline=4e9))
    steps(h, 2)
    assert h.scheduler.reset_prefix_cache(reset_running_requests=True)
    monkeypatch.setattr("turret.scheduler.scheduler.time.time", lambda: 5e9)
    assert h.scheduler.counts() == (0, 1) and h.scheduler.expire() == []
    finish(h)


def test_the_end_of_a_late_request_tells_true_numbers() -> None:
    h = harness(max_num_seqs=1)
    h.add(free_running("a", 4))
    steps(h, 1)
    h.add(free_running("b", 4, queue_deadline=1.0, arrival_time=0.5))
    h.add(free_running("c", 4))
    (event,) = h.scheduler.expire()
    assert event.finish_reason is FinishReason.ERROR and event.error_status == 503 and event.retry_after >= 1
    assert "1 requests are running and 1 waiting" in event.error
