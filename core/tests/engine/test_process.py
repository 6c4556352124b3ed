"""The engine's process and death: whoever dies, at whatever moment, the other side knows at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from turret.engine import EngineClient, EngineProcess, EngineStream, ProcessLink, event_error
from turret.errors import ConfigError, EngineDeadError, EngineError
from turret.messages import Abort, Events, FinishReason, Request, Submit, TokenEvent
from turret.testing.null_engine import NullConfig, null_tokens
from turret.transport import ClientSocket

FACTORY = "turret.testing.null_engine:build_null_engine"
AT_ONCE = 1.0
"""Seconds within which a death must be known."""
MakeRequest = Callable[..., Request]


def process(**fields: Any) -> EngineProcess:
    return EngineProcess(FACTORY, msgspec.json.encode(NullConfig(**fields)).decode())


@asynccontextmanager
async def connected(engine: EngineProcess) -> AsyncIterator[EngineClient]:
    client = EngineClient(ProcessLink(engine))
    await client.start()
    try:
        yield client
    finally:
        await client.shutdown()


async def read(stream: EngineStream) -> list[TokenEvent]:
    return [event async for event in stream]


def tokens(events: list[TokenEvent]) -> list[int]:
    return [token for event in events for token in event.token_ids]


def alive(pid: int) -> bool:
    """A zombie counts as dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


# -- the engine dies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["idle", "prefill", "decode"])
def test_a_killed_engine_ends_every_stream_at_once(moment: str, make_request: MakeRequest) -> None:
    async def main() -> None:
        slow = {"idle": 0.0, "prefill": 0.5, "decode": 0.01}[moment]
        engine = process(step_seconds=slow, max_num_seqs=2, max_num_batched_tokens=64)
        async with connected(engine) as client:
            streams = []
            if moment != "idle":
                streams = [client.submit(make_request(f"r{i}", [i] * 500, 5000)) for i in range(4)]
                call = asyncio.create_task(client.call("health"))
                await call
            if moment == "decode":
                await streams[0].batch()
            pending = asyncio.create_task(client.call("health")) if moment == "prefill" else None
            await asyncio.sleep(0)
            os.kill(engine.pid, signal.SIGKILL)
            began = time.monotonic()
            reason = await asyncio.wait_for(client.wait_dead(), 10)
            ends = [(await read(s))[-1] for s in streams]
            assert time.monotonic() - began < AT_ONCE
            assert "killed by SIGKILL" in reason and not client.healthy and client.num_open == 0
            for event in ends:
                assert isinstance(event_error(event), EngineDeadError) and event.error == reason
            if pending is not None:
                with pytest.raises(EngineDeadError, match="SIGKILL"):
                    await pending
            with pytest.raises(EngineDeadError, match="SIGKILL"):
                client.submit(make_request("late"))

    asyncio.run(main())


def test_an_engine_killed_while_it_loads_fails_the_start_at_once() -> None:
    async def main() -> None:
        engine = process(load_seconds=60)
        client = EngineClient(ProcessLink(engine))
        loading = asyncio.Event()
        stages: list[tuple[str, float]] = []

        def progress(stage: str, fraction: float) -> None:
            stages.append((stage, fraction))
            loading.set()

        start = asyncio.create_task(client.start(progress))
        await asyncio.wait_for(loading.wait(), 20)
        assert stages[0][0] == "loading weights" and 0 <= stages[0][1] < 1
        os.kill(engine.pid, signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
            await start
        assert time.monotonic() - began < AT_ONCE
        assert not client.healthy and client.dead_reason is not None
        assert not engine.running and not Path(engine.address.removeprefix("ipc://")).parent.exists()

    asyncio.run(main())


def test_an_engine_that_kills_itself_in_a_step_is_a_dead_engine(make_request: MakeRequest) -> None:
    async def main() -> None:
        async with connected(process(fault="kill", fault_step=5, async_depth=1)) as client:
            events = await asyncio.wait_for(read(client.submit(make_request("a", [1], 50))), 10)
            assert events[-1].finish_reason is FinishReason.ERROR and "SIGKILL" in str(events[-1].error)
            assert tokens(events) == null_tokens([1], len(tokens(events)))

    asyncio.run(main())


def test_what_was_said_before_the_death_is_not_lost(make_request: MakeRequest) -> None:
    """A worker that dies in step 5 leaves time to deliver the four tokens before."""
    async def main() -> None:
        async with connected(process(fault="dead", fault_step=5, async_depth=1)) as client:
            events = await read(client.submit(make_request("a", [1], 50)))
            assert "SIGKILL" in str(events[-1].error)
            assert tokens(events) == null_tokens([1], 4)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("factory", "kind", "said"),
    [
        ("turret.testing.null_engine", ConfigError, "package.module:function"),
        ("turret.testing.null_engine:nothing", ConfigError, "no function 'nothing'"),
        ("turret.no_such_room:build", EngineError, "No module named 'turret.no_such_room'"),
        ("turret.testing.null_engine:NullConfig", EngineError, "failed to start"),
    ],
)
def test_a_start_that_cannot_work_says_why(factory: str, kind: type[Exception], said: str) -> None:
    async def main() -> None:
        client = EngineClient(ProcessLink(EngineProcess(factory, "{}")))
        with pytest.raises(kind, match=said):
            await client.start()
        assert client.dead_reason is not None and said in client.dead_reason

    asyncio.run(main())


def test_cancelling_a_start_leaves_no_process() -> None:
    async def main() -> None:
        engine = process(load_seconds=60)
        client = EngineClient(ProcessLink(engine))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.start(), 0.3)
        assert not engine.running
        await client.shutdown()

    asyncio.run(main())


def test_an_engine_that_will_not_end_is_killed(make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turret.engine.client.STOP_GRACE", 0.3)

    async def main() -> None:
        engine = process(step_seconds=30)
        async with connected(engine) as client:
            stream = client.submit(make_request("a"))
            await client.call("health")
            await asyncio.sleep(0.1)  # into the step of 30 s
            began = time.monotonic()
            await client.shutdown()
            assert time.monotonic() - began < 5 and not engine.running
            assert [e.finish_reason for e in await read(stream)] == [FinishReason.ABORT]

    asyncio.run(main())


# -- signals and nonsense --------------------------------------------------------------------------------------------


def test_ctrl_c_reaches_the_engine_and_the_parent_decides(make_request: MakeRequest) -> None:
    async def main() -> None:
        engine = process(step_seconds=0.01)
        async with connected(engine) as client:
            stream = client.submit(make_request("a", [1], 30))
            await stream.batch()
            os.kill(engine.pid, signal.SIGINT)
            os.kill(engine.pid, signal.SIGTERM)
            assert (await read(stream))[-1].finish_reason is FinishReason.LENGTH
            assert await client.call("health") is True and client.healthy

    asyncio.run(main())


def test_nonsense_on_the_socket_does_not_disturb_the_engine(make_request: MakeRequest) -> None:
    async def main() -> None:
        engine = process(step_seconds=0.005)
        async with connected(engine) as client:
            stream = client.submit(make_request("a", [1], 40))
            with zmq.Context() as context, context.socket(zmq.DEALER) as rogue:
                rogue.connect(engine.address)
                for payload in (b"", b"\xc1\x00", b"\x81\xa4type\xa4none", os.urandom(1000)):
                    rogue.send(payload)
                rogue.send_multipart([b"a", b"b", b"c"])
                assert tokens(await read(stream)) == null_tokens([1], 40)
                rogue.close(linger=0)
            assert await client.call("health") is True

    asyncio.run(main())


def test_two_front_ends_share_an_engine(make_request: MakeRequest) -> None:
    """The second has no process of its own: it only knows the address."""
    async def main() -> None:
        engine = process(step_seconds=0.005)
        async with connected(engine) as client:
            other = ClientSocket(engine.address)
            other.send(Submit(requests=[make_request("theirs", [2], 5)]))
            assert tokens(await read(client.submit(make_request("ours", [1], 40)))) == null_tokens([1], 40)
            got: list[TokenEvent] = []
            while (frame := other.receive()) is not None:
                assert isinstance(frame, Events)
                got.extend(frame.events)
            assert tokens(got) == null_tokens([2], 5) and {e.request_id for e in got} == {"theirs"}
            other.send(Abort(request_ids=["ours"]))
            other.close()

    asyncio.run(main())


# -- the parent dies -------------------------------------------------------------------------------------------------

SCRIPT = """
import asyncio, os, sys
from turret.engine import EngineClient, EngineProcess, ProcessLink

engine = EngineProcess("turret.testing.null_engine:build_null_engine", {config!r})

async def main():
    engine.launch()
    print(engine.pid, engine.address, flush=True)
    {body}

asyncio.run(main())
"""


def parent(body: str, **fields: Any) -> tuple[subprocess.Popen[str], int, Path]:
    """A script that owns an engine; its handle, the engine's pid, the engine's directory. It has no main guard."""
    config = msgspec.json.encode(NullConfig(**fields)).decode()
    code = SCRIPT.format(config=config, body=textwrap.indent(textwrap.dedent(body), "    ").strip())
    script = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert script.stdout is not None
    pid, address = script.stdout.readline().split()
    return script, int(pid), Path(address.removeprefix("ipc://")).parent


@pytest.mark.parametrize("moment", ["loading", "idle"])
def test_a_killed_parent_takes_its_engine_along(moment: str) -> None:
    body = "await EngineClient(ProcessLink(engine)).start(); print('up', flush=True); await asyncio.sleep(60)"
    script, pid, directory = parent(body, load_seconds=60 if moment == "loading" else 0)
    assert script.stdout is not None
    if moment == "idle":
        assert script.stdout.readline() == "up\n"
    assert alive(pid)
    script.kill()
    script.wait()
    wait_until(lambda: not alive(pid), "the engine's end")
    wait_until(lambda: not directory.exists(), "the removal of its directory")


def test_a_parent_that_forgets_to_shut_down_leaves_nothing_behind() -> None:
    script, pid, directory = parent("await EngineClient(ProcessLink(engine)).start(); raise KeyError('script')")
    _, errors = script.communicate(timeout=20)
    assert script.returncode == 1 and "KeyError: 'script'" in errors
    assert not alive(pid) and not directory.exists()


def test_a_fork_of_the_parent_that_exits_does_not_touch_the_engine() -> None:
    code = f"""
import os, sys
from turret.engine import EngineProcess
engine = EngineProcess({FACTORY!r}, '{{}}')
engine.launch()
if (fork := os.fork()) == 0:
    sys.exit(0)
print(os.waitpid(fork, 0)[1], engine.running)
"""
    script = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert script.stdout == "0 True\n", script.stderr


def test_a_launch_can_be_undone() -> None:
    engine = process(load_seconds=60)
    engine.launch()
    with pytest.raises(EngineError, match="launched already"):
        engine.launch()
    pid = engine.pid
    engine.end()
    engine.end()
    assert not alive(pid)


# -- idleness --------------------------------------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """All threads of a process, the clock that clock_getcpuclockid(3) names."""
    return time.clock_gettime((~pid << 3) | 2)


@pytest.mark.parametrize("before", ["nothing", "some work"])
def test_idle_costs_no_cpu(before: str, make_request: MakeRequest) -> None:
    """Under 1 % of a core over 3 s, for the engine and the client's process each."""
    async def main() -> None:
        engine = process()
        async with connected(engine) as client:
            if before != "nothing":
                await read(client.submit(make_request("a", [1], 100)))
                client.submit(make_request("b", [1], 5000)).close()
                await client.call("health")
            await asyncio.sleep(0.2)
            used = cpu_seconds(engine.pid), time.process_time()
            await asyncio.sleep(3)
            assert cpu_seconds(engine.pid) - used[0] < 0.03
            assert time.process_time() - used[1] < 0.03

    asyncio.run(main())
