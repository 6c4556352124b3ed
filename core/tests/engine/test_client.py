"""The client over both links: streams, early leaving, slow readers, calls, draining."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import pytest

from turret.engine import EngineClient, EngineProcess, EngineStream, ProcessLink, ThreadLink, event_error
from turret.errors import CapacityError, EngineDeadError, EngineError, LoadError, RequestError
from turret.messages import Abort, ClientFrame, FinishReason, Request, Submit, TokenEvent
from turret.testing.null_engine import NullConfig, build_null_engine, null_tokens

FACTORY = "turret.testing.null_engine:build_null_engine"
MakeRequest = Callable[..., Request]
Connect = Callable[..., AbstractAsyncContextManager[EngineClient]]


@pytest.fixture(params=["process", "thread"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """`async with connect(**NullConfig fields) as client`: the engine is up; `client.frames` are those sent."""

    @asynccontextmanager
    async def connected(**fields: Any) -> AsyncIterator[EngineClient]:
        config = msgspec.json.encode(NullConfig(**fields)).decode()
        link = ProcessLink(EngineProcess(FACTORY, config)) if request.param == "process" else ThreadLink(
            build_null_engine, config)
        frames: list[ClientFrame] = []
        send = link.send
        link.send = lambda frame: (frames.append(frame), send(frame))[1]  # type: ignore[method-assign]
        client = EngineClient(link)
        client.frames = frames  # type: ignore[attr-defined]
        await client.start()
        try:
            yield client
        finally:
            await client.shutdown()

    return connected


def sent(client: EngineClient, kind: type[ClientFrame]) -> list[Any]:
    return [f for f in client.frames if isinstance(f, kind)]  # type: ignore[attr-defined]


async def read(stream: EngineStream) -> list[TokenEvent]:
    return [event async for event in stream]


def tokens(events: list[TokenEvent]) -> list[int]:
    return [token for event in events for token in event.token_ids]


async def settled(client: EngineClient) -> list[str]:
    """Wait until the engine holds no request; what the worker's batch then held."""
    while (stats := await client.call("stats"))["num_running"] + stats["num_waiting"] > 0:
        await asyncio.sleep(0.005)
    assert stats["kv_cache_usage"] == 0
    return list(await client.call("worker", "requests"))


def test_many_streams_at_once_each_with_its_own_tokens(connect: Connect, make_request: MakeRequest) -> None:
    async def main() -> None:
        async with connect(max_num_seqs=16) as client:
            assert client.healthy and client.ready.vocab_size == 1000
            prompts = [[i] * (1 + i % 7) for i in range(40)]
            streams = [client.submit(make_request(f"r{i}", p, 25)) for i, p in enumerate(prompts)]
            for prompt, events in zip(prompts, await asyncio.gather(*map(read, streams)), strict=True):
                assert tokens(events) == null_tokens(prompt, 25)
                assert [e.finish_reason for e in events if e.finish_reason] == [FinishReason.LENGTH]
            assert client.num_open == 0 and client.stats.generation_tokens_total == 1000
            assert client.stats.num_running == 0
            assert sent(client, Abort) == []

    asyncio.run(main())


def test_several_requests_share_a_stream_and_a_frame(connect: Connect, make_request: MakeRequest) -> None:
    async def main() -> None:
        async with connect() as client:
            stream = client.submit([make_request(f"c{i}", [i], 3 + i) for i in range(4)])
            events = await read(stream)
            for i in range(4):
                assert tokens([e for e in events if e.request_id == f"c{i}"]) == null_tokens([i], 3 + i)
            assert stream.finished and len(sent(client, Submit)) == 1

    asyncio.run(main())


def test_a_slow_reader_loses_nothing_and_holds_up_nobody(connect: Connect, make_request: MakeRequest) -> None:
    async def main() -> None:
        async with connect() as client:
            slow = client.submit(make_request("slow", [1], 200))
            first = await slow.batch()
            assert tokens(await read(client.submit(make_request("quick", [2], 300)))) == null_tokens([2], 300)
            rest = await slow.batch()
            assert len(rest) >= 199 - len(first), "what had come meanwhile is there in one go"
            assert tokens(first + rest + await read(slow)) == null_tokens([1], 200)
            assert await slow.batch() == []

    asyncio.run(main())


@pytest.mark.parametrize("moment", ["queued", "prefill", "decode"])
def test_leaving_early_aborts_once_and_frees_everything(
    moment: str, connect: Connect, make_request: MakeRequest
) -> None:
    async def main() -> None:
        async with connect(max_num_batched_tokens=16, max_num_seqs=1, step_seconds=0.01) as client:
            other = client.submit(make_request("other", [7], 10_000 if moment == "queued" else 1))
            await other.batch()
            async with client.submit(make_request("a", [1] * 200, 4000)) as stream:
                if moment == "decode":
                    assert len(await stream.batch()) == 1
                elif moment == "prefill":
                    while (await client.call("stats"))["num_running"] == 0:
                        await asyncio.sleep(0.005)
                assert client.num_open == (2 if moment == "queued" else 1)
            stream.close()
            assert (await read(stream))[-1].finish_reason is FinishReason.ABORT
            assert sent(client, Abort) == [Abort(request_ids=["a"])]
            other.close()
            other.close()
            await settled(client)
            assert len(sent(client, Abort)) == (2 if moment == "queued" else 1)
            assert tokens(await read(client.submit(make_request("a", [3], 4)))) == null_tokens([3], 4)
            assert await settled(client) in ([], ["a"])  # the worker hears of an end with the next plan

    asyncio.run(main())


def test_generate_left_by_a_break_or_a_cancelled_task_aborts(connect: Connect, make_request: MakeRequest) -> None:
    async def main() -> None:
        async with connect(step_seconds=0.005) as client:
            async def reader() -> None:
                async for _ in client.generate(make_request("cancelled", [1], 5000)):
                    pass

            task = asyncio.create_task(reader())
            events = client.generate(make_request("left", [2], 5000))
            async for event in events:
                assert event.token_ids == null_tokens([2], 1)
                break
            await events.aclose()  # type: ignore[attr-defined]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sorted(f.request_ids[0] for f in sent(client, Abort)) == ["cancelled", "left"]
            await settled(client)

    asyncio.run(main())


def test_abort_by_id_ends_only_that_request_of_a_stream(connect: Connect, make_request: MakeRequest) -> None:
    async def main() -> None:
        async with connect(step_seconds=0.002) as client:
            stream = client.submit([make_request("a", [1], 5000), make_request("b", [2], 20)])
            await stream.batch()
            await client.abort(["a", "a", "unknown"])
            ends = {e.request_id: e.finish_reason for e in await read(stream) if e.finish_reason}
            assert ends == {"a": FinishReason.ABORT, "b": FinishReason.LENGTH}
            assert sent(client, Abort) == [Abort(request_ids=["a"])]

    asyncio.run(main())


def test_an_id_is_free_again_when_the_engine_has_ended_it(connect: Connect, make_request: MakeRequest) -> None:
    async def main() -> None:
        async with connect(step_seconds=0.01) as client:
            stream = client.submit(make_request("a", [1], 5000))
            with pytest.raises(RequestError, match="already in use"):
                client.submit(make_request("a", [2], 5))
            with pytest.raises(RequestError, match="'b' is already in use"):
                client.submit([make_request("b"), make_request("b")])
            stream.close()
            with pytest.raises(RequestError, match="already in use"):
                client.submit(make_request("a", [2], 5))  # events of the first may still be on their way
            await settled(client)
            assert tokens(await read(client.submit(make_request("a", [2], 5)))) == null_tokens([2], 5)

    asyncio.run(main())


def test_a_refusal_is_the_only_event(connect: Connect, make_request: MakeRequest) -> None:
    async def main() -> None:
        async with connect(max_model_len=32) as client:
            (event,) = await read(client.submit(make_request("a", [1] * 32)))
            error = event_error(event)
            assert isinstance(error, RequestError) and error.param == "prompt" and "32" in str(error)
            assert client.num_open == 0 and client.healthy

    asyncio.run(main())


def test_calls(connect: Connect) -> None:
    async def main() -> None:
        async with connect() as client:
            answers = await asyncio.gather(client.call("health"), client.call("worker", "echo", [1], "x"))
            assert answers == [True, [[1], "x"]]
            with pytest.raises(EngineError, match="no method 'nonsense'"):
                await client.call("nonsense")

    asyncio.run(main())


def test_shutdown_lets_open_requests_finish_and_takes_no_more(connect: Connect, make_request: MakeRequest) -> None:
    async def main() -> None:
        async with connect(step_seconds=0.005) as client:
            stream = client.submit(make_request("a", [1], 40))
            await stream.batch()
            ending = asyncio.create_task(client.shutdown(timeout=60))
            await asyncio.sleep(0)
            assert not client.healthy
            with pytest.raises(CapacityError, match="shutting down"):
                client.submit(make_request("b"))
            await ending
            assert (await read(stream))[-1].finish_reason is FinishReason.LENGTH
            assert client.dead_reason == "the engine was shut down"
            with pytest.raises(EngineDeadError, match="shut down"):
                client.submit(make_request("c"))

    asyncio.run(main())


def test_shutdown_aborts_what_does_not_finish_in_time(connect: Connect, make_request: MakeRequest) -> None:
    async def main() -> None:
        async with connect(step_seconds=0.005) as client:
            stream = client.submit([make_request("a", [1], 5000), make_request("b", [1], 5000)])
            await stream.batch()
            await client.shutdown(timeout=0.05)
            ends = {e.request_id: e.finish_reason for e in await read(stream) if e.finish_reason}
            assert ends == {"a": FinishReason.ABORT, "b": FinishReason.ABORT}

    asyncio.run(main())


def test_progress_is_told_and_a_failed_start_raises_what_went_wrong(connect: Connect) -> None:
    async def main() -> None:
        with pytest.raises(LoadError, match="tensor 'embed' ends after the file"):
            async with connect(fault="load"):
                raise AssertionError("it started")

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["raise", "dead"])
def test_a_dead_worker_ends_every_stream_with_the_reason(
    fault: str, connect: Connect, make_request: MakeRequest
) -> None:
    async def main() -> None:
        async with connect(fault=fault, fault_step=4, max_num_seqs=2) as client:
            streams = [client.submit(make_request(f"r{i}", [i], 50)) for i in range(3)]
            for events in await asyncio.gather(*map(read, streams)):
                error = event_error(events[-1])
                assert isinstance(error, EngineDeadError)
                assert ("SIGKILL" if fault == "dead" else "ZeroDivisionError") in str(error)
            reason = await asyncio.wait_for(client.wait_dead(), 5)
            assert reason == str(error) and not client.healthy
            with pytest.raises(EngineDeadError):
                client.submit(make_request("late"))
            with pytest.raises(EngineDeadError):
                await client.call("health")

    asyncio.run(main())


@pytest.mark.parametrize("moment", ["idle", "busy"])
def test_a_killed_worker_process_is_noticed_at_once(
    moment: str, connect: Connect, make_request: MakeRequest
) -> None:
    async def main() -> None:
        async with connect(remote=True, step_seconds=0.01) as client:
            assert tokens(await read(client.submit(make_request("before", [5], 20)))) == null_tokens([5], 20)
            pid = await client.call("worker", "pid")
            streams = []
            if moment == "busy":
                streams = [client.submit(make_request(f"r{i}", [i], 5000)) for i in range(3)]
                await streams[0].batch()
            os.kill(pid, signal.SIGKILL)
            reason = await asyncio.wait_for(client.wait_dead(), 1.0)
            assert "worker process was killed by SIGKILL" in reason and not client.healthy
            for events in await asyncio.gather(*map(read, streams)):
                assert isinstance(event_error(events[-1]), EngineDeadError)

    asyncio.run(main())


def test_a_stream_has_one_reader(connect: Connect, make_request: MakeRequest) -> None:
    async def main() -> None:
        async with connect(step_seconds=0.2) as client:
            stream = client.submit(make_request("a", [1], 2))
            first = asyncio.create_task(read(stream))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="one reader"):
                await stream.batch()
            assert tokens(await first) == null_tokens([1], 2)

    asyncio.run(main())
