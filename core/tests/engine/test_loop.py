"""The serving loop behind a scripted door: who gets which events, and what happens to clients that misbehave."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from turret.engine import EngineCore, EngineLoop
from turret.engine import loop as loop_module
from turret.messages import (
    Abort,
    ClientFrame,
    EngineFailure,
    EngineFrame,
    Events,
    FinishReason,
    Forget,
    Request,
    Shutdown,
    Submit,
    TokenEvent,
    Utility,
    UtilityReply,
    Watch,
)
from turret.testing.null_engine import null_tokens

MakeRequest = Callable[..., Request]
MakeCore = Callable[..., EngineCore]
Script = list[tuple[bytes, ClientFrame] | None]


class ScriptedDoor:
    """Gives the frames of a script; None in it means "nothing now, make a step". Ends with a shutdown.

    An engine without work that waits though the script is at a None is given what follows.
    """

    def __init__(self, script: Script) -> None:
        self.script: deque[tuple[bytes, ClientFrame] | None] = deque(script)
        self.sent: list[tuple[bytes, EngineFrame]] = []
        self.gone: set[bytes] = set()
        self.num_waits = 0

    def watch(self, descriptor: int) -> None:
        raise AssertionError("the null worker cannot be watched")

    def wait(self, timeout: float | None = None) -> bool:
        self.num_waits += 1
        while self.script and self.script[0] is None:
            self.script.popleft()
        return False

    def receive(self) -> tuple[bytes, ClientFrame] | None:
        return self.script.popleft() if self.script else (b"end", Shutdown())

    def send(self, client: bytes, frame: EngineFrame) -> bool:
        if client in self.gone:
            return False
        self.sent.append((client, frame))
        return True

    def events(self, client: bytes) -> list[TokenEvent]:
        return [e for to, f in self.sent if to == client and isinstance(f, Events) for e in f.events]


def tokens(events: list[TokenEvent], request_id: str) -> list[int]:
    return [t for e in events if e.request_id == request_id for t in e.token_ids]


def ends(events: list[TokenEvent]) -> dict[str, list[FinishReason]]:
    """Finish reasons by request: each list must have one entry."""
    found: dict[str, list[FinishReason]] = {}
    for event in events:
        if event.finish_reason is not None:
            found.setdefault(event.request_id, []).append(event.finish_reason)
    return found


def test_events_go_to_the_client_that_asked_one_frame_a_step(make_core: MakeCore, make_request: MakeRequest) -> None:
    door = ScriptedDoor([
        (b"x", Submit(requests=[make_request("a", [1], 3), make_request("b", [2], 3)])),
        (b"y", Submit(requests=[make_request("c", [3], 3)])),
        *[None] * 20,
    ])
    assert EngineLoop(make_core(), door).run() is None
    assert ends(door.events(b"x")) == {"a": [FinishReason.LENGTH], "b": [FinishReason.LENGTH]}
    assert ends(door.events(b"y")) == {"c": [FinishReason.LENGTH]}
    assert tokens(door.events(b"x"), "b") == null_tokens([2], 3)
    frames = [f for to, f in door.sent if to == b"x"]
    assert all(isinstance(f, Events) and len(f.events) == 2 for f in frames) and len(frames) == 3


@pytest.mark.parametrize("depth", [1, 2])
def test_the_last_frame_before_idleness_has_statistics(
    depth: int, make_core: MakeCore, make_request: MakeRequest
) -> None:
    door = ScriptedDoor([(b"x", Submit(requests=[make_request("a", [1], 5)])), *[None] * 20])
    EngineLoop(make_core(async_depth=depth), door).run()
    last = [f for _, f in door.sent if isinstance(f, Events)][-1]
    assert last.stats is not None
    assert (last.stats.num_running, last.stats.generation_tokens_total) == (0, 5)
    sizes = [n for _, f in door.sent if isinstance(f, Events) and f.stats for n in f.stats.step_tokens]
    assert sizes == [1] * 5


def test_an_engine_that_becomes_idle_without_an_event_says_so(make_core: MakeCore, make_request: MakeRequest) -> None:
    """The step under way when the last request is aborted brings no event."""
    door = ScriptedDoor([
        (b"x", Submit(requests=[make_request("a", [1], 50)])), None, None,
        (b"x", Abort(request_ids=["a"])), *[None] * 9,
    ])  # fmt: skip
    EngineLoop(make_core(async_depth=2), door).run()
    told = [f.stats for _, f in door.sent if isinstance(f, Events) and f.stats is not None]
    assert (told[-1].num_running, told[-1].num_waiting, told[-1].kv_cache_usage) == (0, 0, 0.0)


def test_an_idle_engine_waits_at_the_door(make_core: MakeCore, make_request: MakeRequest) -> None:
    door = ScriptedDoor([(b"x", Submit(requests=[make_request("a", [1], 3)])), *[None] * 20])
    EngineLoop(make_core(), door).run()
    assert door.num_waits == 2  # before the first frame and after the last event; never while there was work


def test_a_request_id_in_use_is_refused_and_the_first_owner_keeps_it(
    make_core: MakeCore, make_request: MakeRequest
) -> None:
    door = ScriptedDoor([
        (b"x", Submit(requests=[make_request("a", [1], 6)])), None,
        (b"y", Submit(requests=[make_request("a", [2], 6)])), *[None] * 20,
    ])
    EngineLoop(make_core(), door).run()
    (refusal,) = door.events(b"y")
    assert refusal.error_status == 400 and "already in use" in str(refusal.error)
    assert tokens(door.events(b"x"), "a") == null_tokens([1], 6)


def test_what_can_never_run_is_refused_with_the_reason(make_core: MakeCore, make_request: MakeRequest) -> None:
    requests = [make_request("big", [1] * 50), make_request("a", [1], 2)]
    door = ScriptedDoor([(b"x", Submit(requests=requests)), None, None])
    EngineLoop(make_core(max_model_len=50), door).run()
    first = door.events(b"x")[0]
    assert (first.request_id, first.error_status, first.error_param) == ("big", 400, "prompt")
    assert ends(door.events(b"x"))["a"] == [FinishReason.LENGTH]


def test_an_abort_is_answered_and_a_late_one_ignored(make_core: MakeCore, make_request: MakeRequest) -> None:
    door = ScriptedDoor([
        (b"x", Submit(requests=[make_request("a", [1], 50), make_request("b", [2], 3)])), None, None,
        (b"x", Abort(request_ids=["a"])), *[None] * 10,
        (b"x", Abort(request_ids=["a", "b"])), None,
    ])
    EngineLoop(make_core(), door).run()
    assert ends(door.events(b"x")) == {"a": [FinishReason.ABORT], "b": [FinishReason.LENGTH]}


def test_requests_of_a_client_that_left_are_aborted(make_core: MakeCore, make_request: MakeRequest) -> None:
    core = make_core()
    door = ScriptedDoor([
        (b"x", Submit(requests=[make_request("a", [1], 500)])),
        (b"y", Submit(requests=[make_request("b", [2], 5)])), *[None] * 20,
    ])
    door.gone.add(b"x")
    EngineLoop(core, door).run()
    assert ends(door.events(b"y")) == {"b": [FinishReason.LENGTH]}
    assert core.stats().generation_tokens_total < 10  # nobody computed the 500


def test_calls_are_answered_and_their_failures_told(make_core: MakeCore) -> None:
    door = ScriptedDoor([
        (b"x", Utility(call_id=1, method="worker", args=["echo", 5])),
        (b"x", Utility(call_id=2, method="reset_prefix_cache", args=["too", "many", "arguments"])),
        (b"y", Utility(call_id=3, method="nonsense")),
    ])
    assert EngineLoop(make_core(), door).run() is None
    replies = [(to, f) for to, f in door.sent if isinstance(f, UtilityReply)]
    assert replies[0] == (b"x", UtilityReply(call_id=1, result=[5]))
    assert replies[1][1].error is not None and replies[1][1].error.startswith("reset_prefix_cache:")
    assert replies[2][0] == b"y" and "no method 'nonsense'" in str(replies[2][1].error)


def test_a_flood_of_frames_does_not_hold_up_running_requests(
    make_core: MakeCore, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "FRAMES_PER_STEP", 2)
    flood: Script = [(b"x", Utility(call_id=i, method="health")) for i in range(12)]
    door = ScriptedDoor([(b"x", Submit(requests=[make_request("a", [1], 4)])), *flood, *[None] * 5])
    EngineLoop(make_core(), door).run()
    kinds = [type(f) for _, f in door.sent]
    assert kinds.index(Events) < 4 and kinds.count(UtilityReply) == 12


@pytest.mark.parametrize("depth", [1, 2])
def test_a_dead_worker_is_told_to_every_client_after_its_requests_ended(
    depth: int, make_core: MakeCore, make_request: MakeRequest
) -> None:
    door = ScriptedDoor([
        (b"idle", Utility(call_id=1, method="health")),
        (b"x", Submit(requests=[make_request("a"), make_request("b")])), *[None] * 20,
    ])
    reason = EngineLoop(make_core(fault="dead", fault_step=3, async_depth=depth), door).run()
    assert reason is not None and "SIGKILL" in reason
    assert ends(door.events(b"x")) == {"a": [FinishReason.ERROR], "b": [FinishReason.ERROR]}
    assert {e.error_status for e in door.events(b"x") if e.finish_reason} == {503}
    assert sorted(to for to, _ in door.sent[-2:]) == [b"idle", b"x"]
    assert [f for _, f in door.sent[-2:]] == [EngineFailure(message=reason)] * 2


def test_a_scheduler_that_breaks_still_leaves_no_request_without_an_end(
    make_core: MakeCore, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = make_core()

    def broken(*args: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(core._scheduler, "commit", broken)
    monkeypatch.setattr(core._scheduler, "finish_all", broken)
    door = ScriptedDoor([(b"x", Submit(requests=[make_request("a"), make_request("b")])), *[None] * 20])
    reason = EngineLoop(core, door).run()
    assert reason is not None and "KeyError" in reason
    assert ends(door.events(b"x")) == {"a": [FinishReason.ERROR], "b": [FinishReason.ERROR]}


def test_requests_that_nobody_plans_are_ended_in_the_end(
    make_core: MakeCore, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "STALL_LIMIT", 0.0)
    core = make_core()
    monkeypatch.setattr(core._scheduler, "plan", lambda: None)
    door = ScriptedDoor([(b"x", Submit(requests=[make_request("a")])), *[None] * 5])
    assert EngineLoop(core, door).run() is None
    (event,) = door.events(b"x")
    assert event.finish_reason is FinishReason.ERROR and "planned nothing" in str(event.error)


def test_shutdown_aborts_what_is_open(make_core: MakeCore, make_request: MakeRequest) -> None:
    door = ScriptedDoor([(b"x", Submit(requests=[make_request("a", [1], 500)])), None, None])
    assert EngineLoop(make_core(), door).run() is None
    assert ends(door.events(b"x")) == {"a": [FinishReason.ABORT]}


def test_a_client_that_another_says_is_gone_loses_its_requests_even_those_that_come_after_the_news(
    make_core: MakeCore, make_request: MakeRequest
) -> None:
    core = make_core(max_num_seqs=2)
    waiting = [make_request(name, [1], 50) for name in ("a", "b", "c")]
    door = ScriptedDoor([
        (b"x", Submit(requests=waiting)),
        (b"y", Submit(requests=[make_request("d", [2], 3)])),
        None, None,
        (b"main", Forget(b"x")),
        (b"x", Submit(requests=[make_request("late", [3], 50)])),
        None,
        (b"main", Utility(call_id=1, method="worker", args=["requests"])),
        *[None] * 20,
    ])  # fmt: skip
    assert EngineLoop(core, door).run() is None
    assert ends(door.events(b"x")) == {}, "nobody is there to hear of it"
    assert ends(door.events(b"y")) == {"d": [FinishReason.LENGTH]}, "the place is free at once"
    assert core.stats().kv_cache_usage == 0 and core.stats().num_waiting == 0


def test_a_watcher_alone_gets_the_statistics(make_core: MakeCore, make_request: MakeRequest) -> None:
    door = ScriptedDoor([
        (b"main", Watch()),
        (b"x", Submit(requests=[make_request("a", [1], 5)])),
        (b"y", Submit(requests=[make_request("b", [2], 5)])),
        *[None] * 20,
    ])  # fmt: skip
    EngineLoop(make_core(), door).run()
    told = {to: [f.stats for t, f in door.sent if t == to and isinstance(f, Events)] for to in (b"x", b"y", b"main")}
    assert not any(told[b"x"]) and not any(told[b"y"])
    assert told[b"main"][-1].num_running == 0
    assert sum(size for stats in told[b"main"] if stats is not None for size in stats.step_tokens) >= 2 * 5
