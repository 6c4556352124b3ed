"""Random traffic against a simulated worker: no leak, no lie, no hang, and every answer as if it ran alone."""

from __future__ import annotations

import contextlib
import random

import hypothesis.strategies as st
from hypothesis import HealthCheck, event, given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simulated_worker import Harness, make_groups, make_request

from turret.errors import RequestError
from turret.kv import HASH_ALGORITHMS
from turret.messages import FinishReason, KVCacheConfig, StepPlan
from turret.scheduler import SchedulerLimits

LAYOUTS = [(None,), (None, 3), (5,), (None, 2, 7), (None, None, 4), (1, None)]
PREFIXES = [[], [3] * 4, [3] * 8, [3, 4, 5, 6] * 3, [3] * 8 + [5] * 9]


@st.composite
def limits(draw: st.DrawFn) -> SchedulerLimits:
    partials = draw(st.integers(1, 3))
    return SchedulerLimits(
        max_num_batched_tokens=draw(st.integers(1, 24)),
        max_num_seqs=draw(st.integers(1, 6)),
        max_model_len=draw(st.integers(20, 48)),
        max_num_partial_prefills=partials,
        max_long_partial_prefills=draw(st.integers(1, partials)),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 3, 7])),
        enable_chunked_prefill=draw(st.sampled_from([True, True, False])),
        async_depth=draw(st.integers(1, 3)),
    )


@st.composite
def pools(draw: st.DrawFn) -> KVCacheConfig:
    return KVCacheConfig(
        num_blocks=draw(st.integers(2, 40)),
        block_size=draw(st.sampled_from([1, 2, 4])),
        groups=make_groups(*draw(st.sampled_from(LAYOUTS))),
        enable_prefix_caching=draw(st.sampled_from([True, True, True, False])),
        hash_algo=draw(st.sampled_from(HASH_ALGORITHMS)),
    )


class Traffic(RuleBasedStateMachine):
    @initialize(limits=limits(), config=pools(), priority=st.booleans())
    def begin(self, limits: SchedulerLimits, config: KVCacheConfig, priority: bool) -> None:
        self.harness = Harness(limits, config, priority)
        self.count = 0
        self.refused = 0

    @rule(data=st.data(), burst=st.integers(1, 4))
    def arrive(self, data: st.DataObject, burst: int) -> None:
        for _ in range(burst):
            self.count += 1
            prompt = data.draw(st.sampled_from(PREFIXES)) + data.draw(st.lists(st.integers(2, 6), max_size=6))
            request = make_request(
                f"r{self.count}",
                prompt,
                data.draw(st.integers(1, 20)),
                seed=data.draw(st.integers(0, 3)),
                priority=data.draw(st.integers(0, 2)),
                arrival_time=float(self.count),
                cache_salt=data.draw(st.sampled_from([None, None, "salt"])),
                adapter=data.draw(st.sampled_from([None, None, "salt"])),
                ignore_eos=data.draw(st.booleans()),
                skip_cache=data.draw(st.sampled_from([None, True])),
            )
            try:
                self.harness.add(request)
            except RequestError:
                self.refused += 1

    @rule()
    def plan(self) -> None:
        self.harness.plan()

    @rule()
    def commit(self) -> None:
        self.harness.commit()

    @rule(turns=st.integers(1, 6))
    def turn(self, turns: int) -> None:
        for _ in range(turns):
            self.harness.step()

    @precondition(lambda self: self.harness.live())
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.harness.live()), max_size=2))
        self.harness.abort([*ids, "nobody"])
        assert not set(ids) & set(self.harness.live())

    @precondition(lambda self: self.harness.live())
    @rule(data=st.data())
    def one_request_fails(self, data: st.DataObject) -> None:
        self.harness.worker.failing.add(data.draw(st.sampled_from(self.harness.live())))

    @rule(running_too=st.booleans())
    def reset(self, running_too: bool) -> None:
        held = self.harness.kv.usage > 0
        assert self.harness.scheduler.reset_prefix_cache(running_too) is (running_too or not held)

    @invariant()
    def blocks_are_in_order(self) -> None:
        if hasattr(self, "harness"):
            self.harness.check_blocks()

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        harness = self.harness
        event(f"preempted: {harness.scheduler.stats().preemptions_total > 0}")
        event(f"hits: {harness.kv.prefix_stats.hits > 0}")
        harness.drain()
        for request_id in harness.requests:
            harness.check_answer(request_id)
            if request_id not in harness.worker.failing:
                assert harness.answers[request_id].end.finish_reason is not FinishReason.ERROR
        harness.check_idle()


Traffic.TestCase.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestTraffic(Traffic.TestCase):
    """Every promise of the harness, over random arrivals, lengths, aborts, failures, resets and tiny pools."""


def dense_harness(draw: random.Random) -> Harness:
    """Limits and a pool under which requests run, share and preempt each other most of the time."""
    partials = draw.randint(1, 3)
    limits = SchedulerLimits(
        max_num_batched_tokens=draw.randint(4, 32),
        max_num_seqs=draw.randint(2, 8),
        max_model_len=48,
        max_num_partial_prefills=partials,
        max_long_partial_prefills=draw.randint(1, partials),
        long_prefill_token_threshold=draw.choice([0, 0, 5]),
        enable_chunked_prefill=draw.random() < 0.8,
        async_depth=draw.choice([1, 2, 2, 3]),
    )
    layout, size = draw.choice(LAYOUTS), draw.choice([1, 2, 4])
    config = KVCacheConfig(
        num_blocks=1 + draw.randint(30, 90) * len(layout) // size,
        block_size=size,
        groups=make_groups(*layout),
        enable_prefix_caching=draw.random() < 0.9,
        hash_algo=draw.choice(HASH_ALGORITHMS),
    )
    return Harness(limits, config, priority=draw.random() < 0.5)


def dense_traffic(harness: Harness, draw: random.Random, count: int) -> None:
    """`count` requests in bursts, most of them variations of few prompts, with some aborts on the way."""
    base = [[draw.randint(2, 4) for _ in range(draw.randint(4, 24))] for _ in range(3)]
    for number in range(count):
        prompt = draw.choice(base)[: draw.randint(4, 24)] + [draw.randint(2, 4) for _ in range(draw.randint(0, 3))]
        request = make_request(f"r{number}", prompt, draw.randint(1, 20), seed=draw.randint(0, 1),
                               priority=draw.randint(0, 2), arrival_time=float(number),
                               cache_salt=draw.choice([None, None, None, "salt"]), ignore_eos=draw.random() < 0.8,
                               stop_token_ids=[])
        with contextlib.suppress(RequestError):
            harness.add(request)
        while draw.random() < 0.6:
            harness.step()
            harness.check_blocks()
        if draw.random() < 0.05 and harness.live():
            harness.abort([draw.choice(harness.live())])


@given(seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
def test_dense_traffic_with_shared_prefixes(seed: int) -> None:
    draw = random.Random(seed)
    harness = dense_harness(draw)
    dense_traffic(harness, draw, 30)
    stats = harness.scheduler.stats()
    event(f"preempted: {stats.preemptions_total > 0}")
    event(f"hits: {stats.prefix_cache_hits_total > 0}")
    harness.drain()
    for request_id in harness.requests:
        harness.check_answer(request_id)
    harness.check_idle()


@given(seed=st.integers(0, 2**32), depth=st.integers(1, 2), layout=st.sampled_from(LAYOUTS))
@settings(max_examples=25, deadline=None)
def test_first_come_is_first_served_and_nobody_starves(seed: int, depth: int, layout: tuple[int | None, ...]) -> None:
    """Under endless arrivals the oldest request is in every step it could be in, and admission follows arrival."""
    limits = SchedulerLimits(max_num_batched_tokens=8, max_num_seqs=4, max_model_len=40, async_depth=depth)
    config = KVCacheConfig(num_blocks=30, block_size=2, groups=make_groups(*layout))
    harness, draw, entered = Harness(limits, config), random.Random(seed), []
    for number in range(60):
        harness.add(make_request(f"{number:03}", [draw.randint(2, 4) for _ in range(draw.randint(1, 20))],
                                 draw.randint(1, 6), ignore_eos=True, stop_token_ids=[]))
        oldest = min(harness.live())
        before = len(harness.plans)
        harness.step()
        for plan in harness.plans[before:]:
            entered += [n.request.request_id for n in plan.new]
        planned = {r for p in harness.plans[-depth:] for r in _ids(p)}
        assert oldest in planned
    first_time = list(dict.fromkeys(entered))
    assert first_time == sorted(first_time)
    harness.drain()


def _ids(plan: StepPlan) -> list[str]:
    return [n.request.request_id for n in plan.new] + [r.request_id for r in plan.running]
