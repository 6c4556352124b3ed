"""Policy fair: equal shares for tenants, whoever floods, and every answer still right."""

from __future__ import annotations

import contextlib
import random

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from simulated_worker import Harness, make_groups, make_request

from turret.contracts import RequestView
from turret.errors import PluginError, RequestError
from turret.messages import KVCacheConfig, Request
from turret.scheduler import FairPolicy, FcfsPolicy, Scheduler, SchedulerLimits
from turret.scheduler.tenants import TenantClock


def harness(num_blocks: int = 400, policy: object = None, **fields: object) -> Harness:
    limits = {"max_num_batched_tokens": 32, "max_num_seqs": 8, "max_model_len": 200, "async_depth": 2}
    config = KVCacheConfig(num_blocks=num_blocks, block_size=4, groups=make_groups(None))
    return Harness(SchedulerLimits(**(limits | fields)), config, policy=policy or FairPolicy())


def request_of(tenant: str, number: int, length: int, max_tokens: int) -> Request:
    draw = random.Random(f"{tenant}{number}")
    prompt = [draw.randint(2, 9) for _ in range(length)]
    return make_request(f"{tenant}{number}", prompt, max_tokens, ignore_eos=True, stop_token_ids=[], tenant=tenant)


def flood(h: Harness, count: int, length: int, max_tokens: int, tenant: str = "a") -> None:
    for number in range(count):
        h.add(request_of(tenant, number, length, max_tokens))


def steps_to_first_token(h: Harness, request: Request) -> int:
    h.add(request)
    for count in range(1, 2000):
        h.step()
        if h.answers[request.request_id].tokens:
            return count
    raise AssertionError("it never began")


def finish(h: Harness) -> None:
    h.drain()
    for request_id in h.requests:
        h.check_answer(request_id)
    h.check_idle()


# -- what a flood does to another tenant -----------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32), length=st.integers(20, 120), flood_length=st.integers(1, 120),
    num_seqs=st.integers(3, 10), depth=st.integers(1, 2),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_flood_costs_another_tenant_only_the_steps_under_way(seed, length, flood_length, num_seqs, depth):
    """To the first token: the steps that were in flight, then its own prompt in what the others' decoding leaves."""
    draw = random.Random(seed)
    h = harness(num_blocks=1000, max_num_seqs=num_seqs, async_depth=depth)
    flood(h, 40, flood_length, 30)
    for _ in range(draw.randint(1, 60)):
        h.step()
    alone = -(-length // 32)
    taken = steps_to_first_token(h, request_of("b", 0, length, 5))
    left = 32 - (num_seqs - 1)
    assert taken <= depth + -(-length // left), (taken, alone)
    finish(h)


def test_first_come_makes_it_wait_for_the_whole_flood():
    """The control: the bound above does not hold by itself."""
    h = harness(policy=FcfsPolicy())
    flood(h, 40, 20, 30)
    h.step()
    assert steps_to_first_token(h, request_of("b", 0, 20, 5)) > 50


@pytest.mark.parametrize("what", ["places", "memory", "prompts"])
def test_whatever_the_flood_holds_is_given_up(what):
    settings = {"places": {}, "memory": {"num_blocks": 46, "max_num_seqs": 64}, "prompts": {"max_num_seqs": 64}}[what]
    h = harness(**settings)
    flood(h, 30, 150 if what == "prompts" else 16, 40)
    for _ in range(10):
        h.step()
    assert steps_to_first_token(h, request_of("b", 0, 16, 5)) <= 4
    finish(h)


def test_a_short_prompt_passes_a_very_long_one_after_one_chunk():
    h = harness(max_num_seqs=4)
    h.add(request_of("a", 0, 190, 5))
    h.step()
    assert steps_to_first_token(h, request_of("b", 0, 10, 5)) <= 3
    finish(h)


def test_two_floods_share_the_places():
    h = harness(num_blocks=1000)
    flood(h, 60, 12, 12, "a")
    for _ in range(4):
        h.step()
    flood(h, 60, 12, 12, "b")
    for _ in range(20):
        h.step()
    served = {"a": 0, "b": 0}
    for _ in range(80):
        before = len(h.plans)
        h.step()
        for plan in h.plans[before:]:
            for name in [n.request.request_id for n in plan.new] + [r.request_id for r in plan.running]:
                served[name[0]] += 1
    assert 0.9 < served["a"] / served["b"] < 1.1, served
    finish(h)


def test_one_tenant_alone_is_served_as_it_came():
    h = harness(num_blocks=60)
    flood(h, 30, 12, 12)
    begun = []
    while h.step():
        begun += [n.request.request_id for p in h.plans[-2:] for n in p.new]
    first = list(dict.fromkeys(begun))
    assert first == [f"a{n}" for n in range(30)] and h.scheduler._displaced == 0


# -- and still every answer is right ---------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_traffic_of_tenants_ends_with_right_answers(seed):
    draw = random.Random(seed)
    h = harness(
        num_blocks=draw.randint(16, 60), max_num_seqs=draw.randint(1, 5), max_num_batched_tokens=draw.randint(4, 24),
        max_model_len=48, async_depth=draw.randint(1, 2), enable_chunked_prefill=draw.random() < 0.8,
        max_num_partial_prefills=2, long_prefill_token_threshold=draw.choice([0, 7]),
    )
    for number in range(40):
        with contextlib.suppress(RequestError):
            h.add(request_of(draw.choice("aaaabc"), number, draw.randint(1, 30), draw.randint(1, 15)))
        while draw.random() < 0.55:
            h.step()
            h.check_blocks()
        if draw.random() < 0.05 and h.live():
            h.abort([draw.choice(h.live())])
    gave_way = h.scheduler._displaced
    assert gave_way <= 40, "nobody gives way twice"
    finish(h)


# -- the clock of tenants --------------------------------------------------------------------------------------------


def test_requests_of_a_tenant_are_spread_and_a_newcomer_is_due_now():
    clock = TenantClock()
    starts = [clock.enter(request_of("a", n, 10, 5)).start for n in range(3)]
    assert starts == [0, 10, 20]
    clock.began(10)
    assert clock.enter(request_of("b", 0, 10, 5)).start == 10
    assert 10 < clock.again(0) < 20


def test_a_tenant_pays_for_what_it_got():
    clock = TenantClock()
    request = request_of("a", 0, 10, 50)
    clock.ended(request, clock.enter(request), 40)
    account = clock.enter(request)
    assert account == (50, 10 + 2)  # 5 percent of 40 are expected now
    clock.ended(request, account, None)
    assert clock.enter(request).start == 50, "what never began costs nothing"
    clock.rest()
    assert clock.enter(request).start == 0


def test_endless_new_tenants_do_not_fill_the_memory():
    clock = TenantClock()
    for number in range(20_000):
        account = clock.enter(make_request("r", [2] * 10, 5, tenant=f"t{number}"))
        clock.began(account.start + number)
    assert len(clock._due) < 3000


# -- the contract ----------------------------------------------------------------------------------------------------


def view(name: str, **fields: object) -> RequestView:
    base = {"order": 0, "arrival_time": 0.0, "priority": 0, "tenant": name[0], "num_prompt_tokens": 10,
            "num_computed_tokens": 10, "num_output_tokens": 1}
    return RequestView(request_id=name, **(base | fields))


def test_who_gives_way():
    pick = FairPolicy().pick_displaced
    running = [view("a1", order=1), view("a2", order=2), view("a3", order=3)]
    assert pick(view("b1"), running) == "a3"
    assert pick(view("a4"), running) is None
    assert pick(view("b2"), [*running, view("b1")]) == "a3"
    assert pick(view("b3"), [*running, view("b1"), view("b2")]) is None, "one more is no reason"
    assert pick(view("b1"), [view("a1", num_computed_tokens=0), *running[1:]]) == "a1", "it holds up the others"
    assert pick(view("b1"), [running[0], view("a2", may_yield=False)]) == "a1"
    assert pick(view("b1"), [view("a1")]) is None


class _Wrong(FairPolicy):
    """Names a request that does not run."""

    def pick_displaced(self, waiting, running):
        return "nobody"


def test_a_policy_that_is_wrong_is_named():
    h = harness(policy=_Wrong(), max_num_seqs=1)
    flood(h, 2, 4, 9)
    with pytest.raises(PluginError, match=r"'fair' failed in pick_displaced.*KeyError"):
        h.step()


def test_other_policies_are_not_asked():
    h = harness(policy=FcfsPolicy())
    assert isinstance(h.scheduler, Scheduler) and h.scheduler._displacement is None
