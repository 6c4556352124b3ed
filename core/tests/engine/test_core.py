"""The step loop: right tokens, steps under way, exact aborts, faults of one request and of the worker."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from turret.contracts import Worker
from turret.engine import EngineCore, InprocEngine, event_error
from turret.errors import EngineDeadError, EngineError, RequestError, RequestFailedError
from turret.messages import FinishReason, Request, StepPlan, StepResult, TokenEvent
from turret.testing.null_engine import NullConfig, NullWorker, null_tokens

MakeRequest = Callable[..., Request]
MakeCore = Callable[..., EngineCore]


def run(core: EngineCore) -> dict[str, list[TokenEvent]]:
    """Step until nothing is left; events by request."""
    events: dict[str, list[TokenEvent]] = {}
    while core.has_work:
        for event in core.step():
            events.setdefault(event.request_id, []).append(event)
    return events


def tokens(events: list[TokenEvent]) -> list[int]:
    return [token for event in events for token in event.token_ids]


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("blocks", [16, 4096])
def test_every_request_gets_its_own_tokens(
    depth: int, blocks: int, make_core: MakeCore, make_request: MakeRequest
) -> None:
    """Chunks of 32 and, with few blocks, preemptions on the way."""
    rng = random.Random(7)
    core = make_core(async_depth=depth, num_blocks=blocks, max_num_batched_tokens=32, max_num_seqs=8)
    prompts = {f"r{i}": [rng.randrange(1000) for _ in range(rng.randint(1, 120))] for i in range(20)}
    for name, prompt in prompts.items():
        core.add(make_request(name, prompt, max_tokens=60))
    events = run(core)
    for name, prompt in prompts.items():
        assert tokens(events[name]) == null_tokens(prompt, 60)
        assert [e.finish_reason for e in events[name] if e.finish_reason] == [FinishReason.LENGTH]
    assert (core.stats().preemptions_total > 0) == (blocks == 16)
    assert core.stats().kv_cache_usage == 0


class Spy(NullWorker):
    """Records the order of calls."""

    def __init__(self, config: NullConfig) -> None:
        super().__init__(config)
        self.calls: list[str] = []

    def submit(self, plan: StepPlan) -> None:
        self.calls.append(f"submit {plan.step_id}")
        super().submit(plan)

    def collect(self, timeout: float | None = None) -> StepResult | None:
        result = super().collect(timeout)
        assert result is not None
        self.calls.append(f"collect {result.step_id}")
        return result


def with_worker(core: EngineCore, worker: Worker, depth: int) -> EngineCore:
    """The same scheduler around another worker."""
    return EngineCore(core._scheduler, worker, core.ready, depth)


@pytest.mark.parametrize(
    ("depth", "order"),
    [
        (1, ["submit 1", "collect 1", "submit 2", "collect 2", "submit 3", "collect 3"]),
        (2, ["submit 1", "submit 2", "collect 1", "submit 3", "collect 2", "collect 3"]),
    ],
)
def test_async_depth_is_how_many_steps_are_under_way(
    depth: int, order: list[str], make_core: MakeCore, make_request: MakeRequest
) -> None:
    spy = Spy(NullConfig())
    core = with_worker(make_core(async_depth=depth), spy, depth)
    core.add(make_request("a", max_tokens=3))
    run(core)
    assert spy.calls == order


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_abort_returns_blocks_at_once_and_says_nothing_more(
    steps: int, make_core: MakeCore, make_request: MakeRequest
) -> None:
    """After 0 steps it waits, after 1 and 2 it is in prefill, after 5 it decodes; a step is under way each time."""
    core = make_core(max_num_batched_tokens=16)
    core.add(make_request("a", list(range(40)), max_tokens=50))
    for _ in range(steps):
        core.launch()
        core.finish()
    core.launch()
    events = core.abort(["a", "unknown"])
    assert [(e.request_id, e.finish_reason) for e in events] == [("a", FinishReason.ABORT)]
    assert core.stats().kv_cache_usage == 0
    assert run(core) == {} and core.abort(["a"]) == []
    core.add(make_request("b", [5], max_tokens=4))
    assert tokens(run(core)["b"]) == null_tokens([5], 4)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("fault", "said"), [("raise", "ZeroDivisionError"), ("dead", "killed by SIGKILL")])
def test_a_broken_worker_ends_every_open_request_with_an_error(
    depth: int, fault: str, said: str, make_core: MakeCore, make_request: MakeRequest
) -> None:
    core = make_core(async_depth=depth, fault=fault, fault_step=3, max_num_seqs=2)
    for name in ("a", "b", "waiting"):
        core.add(make_request(name))
    events = run(core)
    assert set(events) == {"a", "b", "waiting"}
    for name, its in events.items():
        error = event_error(its[-1])
        assert isinstance(error, EngineDeadError) and said in str(error)
        assert tokens(its) == null_tokens([1, 2, 3], 0 if name == "waiting" else 2)
        assert [e.finish_reason for e in its[:-1]] == [None] * (len(its) - 1)
    assert core.dead_reason is not None and said in core.dead_reason
    with pytest.raises(EngineDeadError, match=said):
        core.add(make_request("late"))
    assert core.step() == [] and not core.has_work


def test_the_fault_of_one_request_is_its_own(make_core: MakeCore, make_request: MakeRequest) -> None:
    core = make_core(fault="request", fault_step=2)
    core.add(make_request("a"))
    core.add(make_request("b"))
    events = run(core)
    assert isinstance(event_error(events["a"][-1]), RequestFailedError)
    assert tokens(events["b"]) == null_tokens([1, 2, 3], 8)
    assert core.dead_reason is None


def test_an_answer_out_of_turn_is_not_believed(make_core: MakeCore, make_request: MakeRequest) -> None:
    class Forgetful(NullWorker):
        def collect(self, timeout: float | None = None) -> StepResult | None:
            result = super().collect(timeout)
            assert result is not None
            return StepResult(step_id=result.step_id + 1, results=result.results)

    core = with_worker(make_core(), Forgetful(NullConfig()), 2)
    core.add(make_request("a"))
    assert isinstance(event_error(run(core)["a"][-1]), EngineDeadError)
    assert core.dead_reason == "the worker answered with step 2 where step 1 was due"


def test_methods_by_name(make_core: MakeCore, make_request: MakeRequest) -> None:
    core = make_core()
    assert core.call("health", []) is True
    assert core.call("reset_prefix_cache", []) is True
    assert core.call("worker", ["echo", 1, "x"]) == [1, "x"]
    with pytest.raises(EngineError, match=r"no method '__class__'; it has .*health"):
        core.call("__class__", [])


def test_asking_for_statistics_takes_no_step_from_whoever_counts_them(
    make_core: MakeCore, make_request: MakeRequest
) -> None:
    core = make_core(async_depth=1)
    core.add(make_request("a", max_tokens=3))
    core.step()
    assert core.call("stats", [])["step_tokens"] == [3]
    core.step()
    assert core.call("stats", [])["step_tokens"] == [3, 1]
    core.step()
    assert core.stats().step_tokens == [3, 1, 1]
    assert core.stats().step_tokens == []


def test_shutdown_ends_open_requests_with_an_abort(make_core: MakeCore, make_request: MakeRequest) -> None:
    core = make_core()
    core.add(make_request("a"))
    core.step()
    assert [e.finish_reason for e in core.shutdown()] == [FinishReason.ABORT]
    assert core.shutdown() == [] and not core.has_work
    with pytest.raises(EngineDeadError, match="shut down"):
        core.add(make_request("b"))


def test_a_depth_below_one_is_refused(make_core: MakeCore) -> None:
    core = make_core()
    with pytest.raises(EngineError, match="at least 1, got 0"):
        with_worker(core, NullWorker(NullConfig()), 0)


# -- the offline driver ----------------------------------------------------------------------------------------------


def test_generate_gives_each_request_its_events_and_a_refused_one_its_reason(
    make_core: MakeCore, make_request: MakeRequest
) -> None:
    engine = InprocEngine(make_core(max_model_len=64))
    requests = [make_request("a", [4]), make_request("long", list(range(64))), make_request("b", [5])]
    events: dict[str, list[TokenEvent]] = {}
    for event in engine.generate(requests):
        events.setdefault(event.request_id, []).append(event)
    assert tokens(events["a"]) == null_tokens([4], 8) and tokens(events["b"]) == null_tokens([5], 8)
    error = event_error(events["long"][0])
    assert isinstance(error, RequestError) and "64 tokens" in str(error) and error.param == "prompt"


def test_leaving_generate_early_aborts_and_the_engine_stays_usable(
    make_core: MakeCore, make_request: MakeRequest
) -> None:
    engine = InprocEngine(make_core())
    events = engine.generate([make_request("a", max_tokens=50), make_request("b", max_tokens=50)])
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert engine.stats.num_running == 0 and engine.stats.kv_cache_usage == 0
    again = [t for e in engine.generate([make_request("a", [9])]) for t in e.token_ids]
    assert again == null_tokens([9], 8)


def test_abort_events_come_out_of_the_next_step(make_core: MakeCore, make_request: MakeRequest) -> None:
    engine = InprocEngine(make_core())
    engine.add(make_request("a"))
    engine.abort(["a", "unknown"])
    assert engine.has_work
    assert [e.finish_reason for e in engine.step()] == [FinishReason.ABORT]
    assert not engine.has_work


def test_a_dead_engine_speaks_once_then_raises(make_core: MakeCore, make_request: MakeRequest) -> None:
    with InprocEngine(make_core(fault="dead")) as engine:
        engine.add(make_request("a"))
        events = engine.step()
        assert [type(event_error(e)) for e in events] == [EngineDeadError]
        assert engine.dead_reason is not None and not engine.has_work
        for action in (engine.step, lambda: engine.add(make_request("b"))):
            with pytest.raises(EngineDeadError, match="SIGKILL"):
                action()


def test_event_error_knows_each_kind() -> None:
    def event(**fields: Any) -> TokenEvent:
        return TokenEvent(request_id="a", **fields)

    assert event_error(event(finish_reason=FinishReason.STOP)) is None
    assert event_error(event()) is None
    failed = event_error(event(finish_reason=FinishReason.ERROR, error="x"))
    assert type(failed) is RequestFailedError and str(failed) == "x"
    refused = event_error(event(finish_reason=FinishReason.ERROR, error="x", error_status=400, error_param="p"))
    assert isinstance(refused, RequestError) and refused.param == "p"
