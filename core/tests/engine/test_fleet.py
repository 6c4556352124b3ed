"""Several engines behind one client: who gets what, who loses what, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from turret.engine import EngineClient, EngineFleet, EngineStream, OfflineFleet, ThreadLink, event_error
from turret.errors import EngineDeadError, LoadError, RequestError
from turret.messages import FinishReason, Request, TokenEvent
from turret.testing.null_engine import NullConfig, build_null_engine, null_tokens
from turret.transport import Ledger

MakeRequest = Callable[..., Request]


def make_fleet(*engines: dict[str, Any]) -> tuple[EngineFleet, Ledger]:
    ledger = Ledger(columns=len(engines))
    clients = []
    for index, fields in enumerate(engines):
        config = msgspec.json.encode(NullConfig(**fields)).decode()
        clients.append(EngineClient(ThreadLink(build_null_engine, config), index, f"engine {index}"))
    return EngineFleet(clients, [ledger.count(i) for i in range(len(engines))]), ledger


@asynccontextmanager
async def fleet(*engines: dict[str, Any]) -> AsyncIterator[EngineFleet]:
    made, _ = make_fleet(*engines)
    await made.start()
    try:
        yield made
    finally:
        await made.shutdown()


async def read(stream: EngineStream) -> list[TokenEvent]:
    return [event async for event in stream]


def tokens(events: list[TokenEvent], request_id: str) -> list[int]:
    return [token for event in events if event.request_id == request_id for token in event.token_ids]


def works(found: EngineFleet) -> list[int]:
    return [count.total for count in found._work]


async def settled(found: EngineFleet) -> None:
    while (stats := await found.call("stats"))["num_running"] + stats["num_waiting"] > 0:
        await asyncio.sleep(0.005)
    assert stats["kv_cache_usage"] == 0


SLOW = {"step_seconds": 0.01}


def test_every_request_is_answered_right_and_all_engines_work(make_request: MakeRequest) -> None:
    async def main() -> None:
        async with fleet(*[SLOW] * 3) as found:
            streams = [found.submit(make_request(f"r{i}", [i, 1, 2], 10)) for i in range(12)]
            assert [e.num_open for e in found.engines] == [4, 4, 4]
            for i, events in enumerate(await asyncio.gather(*map(read, streams))):
                assert tokens(events, f"r{i}") == null_tokens([i, 1, 2], 10)
            assert works(found) == [0, 0, 0] and found.num_open == 0
            assert found.stats.generation_tokens_total == 120
            assert all(e.stats.generation_tokens_total == 40 for e in found.engines)

    asyncio.run(main())


def test_choices_of_a_prompt_stay_together_and_prompts_of_a_call_need_not(make_request: MakeRequest) -> None:
    async def main() -> None:
        async with fleet(SLOW, SLOW) as found:
            first, second = [1] * 20, [2] * 20
            both = (("a", first), ("b", second))
            calls = [make_request(f"{name}{k}", prompt, 6) for name, prompt in both for k in range(3)]
            stream = found.submit(calls)
            homes = {r.request_id: stream.engine_of(r.request_id) for r in calls}
            assert len({homes[f"a{k}"] for k in range(3)}) == 1 == len({homes[f"b{k}"] for k in range(3)})
            assert homes["a0"] != homes["b0"], "three choices are more than the slack"
            events = await read(stream)
            assert all(tokens(events, f"b{k}") == null_tokens(second, 6) for k in range(3))

    asyncio.run(main())


def test_leaving_early_aborts_wherever_the_requests_are(make_request: MakeRequest) -> None:
    async def main() -> None:
        async with fleet(SLOW, SLOW) as found:
            async with found.submit([make_request(f"r{i}", [i] * 3, 500) for i in range(6)]) as stream:
                await stream.batch()
                assert min(works(found)) > 0
            assert works(found) == [0, 0] and found.num_open == 0
            await settled(found)
            stream = found.submit([make_request(f"s{i}", [i] * 3, 500) for i in range(4)])
            await found.abort(["s0", "s1", "s2", "nobody"])
            reasons = {e.request_id: e.finish_reason for e in await found_until(stream, 3) if e.finish_reason}
            assert reasons == dict.fromkeys(["s0", "s1", "s2"], FinishReason.ABORT)
            stream.close()
            await settled(found)
            assert works(found) == [0, 0]

    asyncio.run(main())


async def found_until(stream: EngineStream, ends: int) -> list[TokenEvent]:
    events: list[TokenEvent] = []
    while sum(e.finish_reason is not None for e in events) < ends:
        events += await stream.batch()
    return events


def test_an_engine_that_dies_ends_its_own_requests_only(make_request: MakeRequest) -> None:
    async def main() -> None:
        async with fleet({**SLOW, "fault": "dead", "fault_step": 8}, SLOW) as found:
            told: list[str] = []

            async def listen() -> None:
                async for reason in found.deaths():
                    told.append(reason)

            listener = asyncio.ensure_future(listen())
            streams = [found.submit(make_request(f"r{i}", [i] * 3, 30)) for i in range(6)]
            homes = [s.engine_of(f"r{i}") for i, s in enumerate(streams)]
            assert sorted(homes) == [0, 0, 0, 1, 1, 1]
            for home, events in zip(homes, await asyncio.gather(*map(read, streams)), strict=True):
                error = event_error(events[-1])
                assert isinstance(error, EngineDeadError) == (home == 0)
                assert home == 1 or "worker 0 was killed" in str(error)
            assert found.dead_reason is None and not found.healthy
            assert found.fault is not None and found.fault.startswith("engine 0: ")
            assert told == [found.fault]
            late = [found.submit(make_request(f"late{i}", [i] * 3, 5)) for i in range(4)]
            ends = [events[-1].finish_reason for events in await asyncio.gather(*map(read, late))]
            assert ends == [FinishReason.LENGTH] * 4
            assert works(found) == [0, 0]
            assert (await found.call("stats"))["num_running"] == 0
            listener.cancel()

    asyncio.run(main())


def test_the_end_of_the_last_engine_is_the_end(make_request: MakeRequest) -> None:
    async def main() -> None:
        dying = {"fault": "dead", "fault_step": 2}
        async with fleet(dying, dying) as found:
            streams = [found.submit(make_request(f"r{i}", [i], 30)) for i in range(2)]
            for events in await asyncio.gather(*map(read, streams)):
                assert isinstance(event_error(events[-1]), EngineDeadError)
            reason = await asyncio.wait_for(found.wait_dead(), 5)
            assert "engine 0: " in reason and "engine 1: " in reason and reason == found.dead_reason
            with pytest.raises(EngineDeadError):
                found.submit(make_request("late"))

    asyncio.run(main())


def test_a_refused_part_of_a_call_takes_the_rest_back(make_request: MakeRequest) -> None:
    async def main() -> None:
        async with fleet(SLOW, SLOW) as found:
            held = found.submit(make_request("twice", [5] * 3, 200))
            with pytest.raises(RequestError, match="already in use"):
                found.submit([make_request("fine", [7] * 3, 200), make_request("twice", [5] * 3, 5)])
            held.close()
            await settled(found)
            assert works(found) == [0, 0]

    asyncio.run(main())


def test_a_failed_start_names_the_engine_and_ends_the_others() -> None:
    async def main() -> None:
        found, _ = make_fleet({"load_seconds": 0.2}, {"fault": "load"})
        stages: set[str] = set()
        with pytest.raises(LoadError, match=r"engine 1: null.safetensors is truncated"):
            await found.start(lambda stage, fraction: stages.add(stage))
        assert {"engine 0: loading weights", "engine 1: loading weights"} <= stages

    asyncio.run(main())


def test_without_an_event_loop(make_request: MakeRequest) -> None:
    found = OfflineFleet(make_fleet({"num_blocks": 100}, {"num_blocks": 50})[0])
    assert found.start().num_blocks == 50 and [r.num_blocks for r in found.engines] == [100, 50]
    events = list(found.generate(make_request(f"r{i}", [i], 7) for i in range(9)))
    assert all(tokens(events, f"r{i}") == null_tokens([i], 7) for i in range(9))
    for event in found.generate([make_request("left", [1], 300)]):
        assert event.finish_reason is None
        break
    assert found.call("reset_prefix_cache") in (True, False)
    found.shutdown()
    found.shutdown()
    with pytest.raises(EngineDeadError):
        found.call("stats")
