"""A worker in this process, end to end on a tiny random model in float32."""

from __future__ import annotations

import pytest
import tiny

from turret.errors import EngineDeadError
from turret.messages import NewRequest, RunningRequest, StepPlan
from turret.worker.local import LocalWorker

PROMPTS = {"a": [5, 9, 200, 31, 7], "b": list(range(20, 51)), "c": [299], "d": [3, 3, 3, 8, 1, 250, 17, 90, 41, 11, 12]}
KINDS = {"a": {}, "b": {"temperature": 1.2, "top_p": 0.9, "logprobs": 2}, "c": {"temperature": 0.7, "top_k": 20},
         "d": {"repetition_penalty": 1.3, "logprobs": 0}}


@pytest.fixture
def make_driver():
    drivers = []

    def make(depth=1, source=None, **platform):
        worker = LocalWorker(tiny.parts(**platform), source or tiny.dummy_source(), tiny.limits())
        drivers.append(tiny.Driver(worker, depth))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.worker.shutdown()


def requests(*names):
    return [tiny.request(name, PROMPTS[name], **KINDS[name]) for name in names]


def test_same_request_same_bits_alone_batched_chunked_and_planned_ahead(make_driver):
    alone = {name: make_driver().run(requests(name), 12)[name] for name in PROMPTS}
    assert len({tuple(t) for t in alone.values()}) == 4 and all(len(t) == 12 for t in alone.values())
    batched = make_driver()
    assert batched.run(requests(*PROMPTS), 12) == alone
    chunked = make_driver()
    assert chunked.run(requests(*PROMPTS), 12, chunk=3) == alone
    ahead = make_driver(depth=2)
    assert ahead.run(requests("d", "c", "b", "a"), 12) == alone


def test_facts_and_shape_of_the_cache(make_driver):
    driver = make_driver()
    facts = driver.facts
    assert (facts.vocab_size, facts.block_size, facts.num_blocks) == (300, tiny.BLOCK, 200)
    assert sorted(layer for g in facts.groups for layer in g.layers) == [0, 1, 2, 3]
    assert facts.page_bytes == tiny.BLOCK * 2 * 16 * 2 * 4
    assert facts.weight_bytes > 300 * 64 * 4 * 2
    assert driver.worker.call("health", []) == {"ok": True, "requests": 0}
    assert driver.worker.call("memory", [])["total"] == 4 << 30


def test_submit_returns_before_the_step_is_done_and_collect_can_give_up(make_driver):
    driver = make_driver()
    assert driver.worker.collect(timeout=0.01) is None
    driver.worker.submit(StepPlan(step_id=77))
    assert driver.worker.collect(timeout=10).step_id == 77


def test_shutdown_can_be_repeated_and_then_nothing_runs(make_driver):
    driver = make_driver()
    driver.worker.shutdown()
    driver.worker.shutdown()
    with pytest.raises(EngineDeadError, match="shut down"):
        driver.worker.submit(StepPlan(step_id=1))
    with pytest.raises(EngineDeadError, match="shut down"):
        driver.worker.call("health", [])


def test_prompt_logprobs_do_not_depend_on_chunks(make_driver):
    whole, cut = make_driver(), make_driver()
    asked = [tiny.request("p", PROMPTS["b"], prompt_logprobs=2)]
    whole.run(asked, 2)
    cut.run(asked, 2, chunk=7)
    entries = [[e for r in d.results["p"] for e in r.prompt_logprobs or []] for d in (whole, cut)]
    assert [e.token_id for e in entries[0]] == PROMPTS["b"][1:]
    assert all(len(e.top_ids) == 2 and e.rank >= 1 for e in entries[0])
    for one, two in zip(*entries, strict=True):
        assert (one.token_id, one.rank, one.top_ids) == (two.token_id, two.rank, two.top_ids)
        assert one.logprob == pytest.approx(two.logprob, abs=1e-5)


def test_a_prefix_from_the_cache_and_a_return_after_preemption_change_nothing(make_driver):
    """Eight cached tokens of another request's pages; then removal and return with the tokens made so far."""
    prompt = PROMPTS["b"]
    asked = tiny.request("p", prompt, temperature=1.1, logprobs=1, frequency_penalty=0.4)
    plain = make_driver()
    want = plain.run([asked], 9)["p"]
    driver = make_driver()
    driver.run([tiny.request("first", [*prompt[:8], 1, 2, 3])], 2)
    shared = [[1, 2], [4, 5]]  # two pages in each group: the driver gives the first request 1..3 and 4..6
    own = [[50 + i + 100 * g for i in range(20)] for g in range(2)]
    blocks = [shared[g] + own[g] for g in range(2)]
    enter = NewRequest(request=asked, block_ids=blocks, num_computed_tokens=8, num_tokens=len(prompt) - 8)
    driver.submit(StepPlan(step_id=100, new=[enter]))
    for step in range(4):
        driver.submit(StepPlan(step_id=101 + step, running=[RunningRequest("p", len(prompt) + step, 1, [])]))
    made = driver.tokens("p")
    assert made == want[:5]
    again = NewRequest(request=asked, block_ids=[[b + 25 for b in own[g]] for g in range(2)], num_computed_tokens=0,
                       num_tokens=len(prompt) + 5, output_token_ids=made)
    driver.submit(StepPlan(step_id=110, removed=["p"], new=[again]))
    for step in range(5, 8):
        driver.submit(StepPlan(step_id=106 + step, running=[RunningRequest("p", len(prompt) + step, 1, [])]))
    assert driver.tokens("p") == want
