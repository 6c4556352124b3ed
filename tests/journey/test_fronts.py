"""Several front ends over shared engines: one server to its clients, and what the loss of a front costs."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

STEP = 0.05
OPTIONS = ("--device", "fake", "--served-model-name", "tiny", "--kv-cache-memory-bytes", "8M")
IDLE_SECONDS = 5.0
IDLE_SHARE = 0.01
"""Of one core, for all processes together."""


def fake(**values: object) -> list[str]:
    """The fake device's options."""
    return ["--plugin-config", *(f"platform:fake.{name}={value}" for name, value in values.items())]


def body(**changes: object) -> dict[str, object]:
    return {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "temperature": 0, **changes}


FIRST_TOKENS = "time_to_first_token_seconds_count"


def series(url: str, name: str) -> float:
    """One series, added up over the engines."""
    text = httpx.get(f"{url}/metrics", timeout=30).text
    found = re.findall(rf"^turret:{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE)
    assert found, f"no series turret:{name}"
    return sum(map(float, found))


def empty(url: str) -> bool:
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    return all(series(url, name) == 0 for name in names)


def processes(pid: int, name: str) -> list[int]:
    """A server's engines or front ends."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for task in tasks for child in task.read_text().split()]
    return sorted(child for child in found if name.encode() in Path(f"/proc/{child}/cmdline").read_bytes())


def owner(connection: http.client.HTTPConnection, fronts: list[int]) -> int:
    """The front that holds the other end of a connection; StopIteration while nobody has accepted it."""
    mine, theirs = connection.sock.getsockname()[1], connection.sock.getpeername()[1]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = (f":{theirs:04X}", f":{mine:04X}")
    inode = next(row[9] for row in rows if row[1].endswith(ends[0]) and row[2].endswith(ends[1]))
    return next(pid for pid in fronts if f"socket:[{inode}]" in open_files(pid))


def open_files(pid: int) -> set[str]:
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found.add(os.readlink(link))
    return found


class Call(threading.Thread):
    """A request on a connection of its own, read to its end in a thread; `error` when the connection broke."""

    def __init__(self, url: str, **changes: object) -> None:
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
        self.connection.connect()
        self._body = httpx.Request("POST", url, json=body(**changes)).content
        self.status = 0
        self.text = ""
        self.error: Exception | None = None
        self.ended = 0.0
        self.start()

    def run(self) -> None:
        try:
            self.connection.request("POST", "/v1/completions", self._body, {"content-type": "application/json"})
            answer = self.connection.getresponse()
            self.status = answer.status
            self.text = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self.error = error
        self.ended = time.monotonic()

    def done(self) -> Call:
        self.join(90)
        assert not self.is_alive(), "a client hangs"
        return self


@pytest.fixture(scope="module")
def pair(serve: Callable[..., Any], tiny_llama: str) -> Iterator[Any]:
    """Two front ends over two engines, for tests that leave them empty."""
    options = ("--api-server-count", "2", "-dp", "2", "--max-queue-requests", "4", "--max-num-seqs", "2",
               "--kv-cache-metrics", "--kv-cache-metrics-sample", "1")  # fmt: skip
    with serve(tiny_llama, *OPTIONS, *options, *fake(devices=2, step_seconds=STEP)) as started:
        started.url = started.wait_ready()
        yield started


def calls_on_both(pair: Any, count: int, **changes: object) -> dict[int, list[Call]]:
    """Calls by the front that has them, at least one each."""
    fronts = processes(pair.process.pid, "turret-front")
    found: dict[int, list[Call]] = {pid: [] for pid in fronts}
    for _ in range(count):
        call = Call(pair.url, **changes)
        until_open = time.monotonic() + 10
        while True:
            try:
                found[owner(call.connection, fronts)].append(call)
                break
            except StopIteration:
                assert time.monotonic() < until_open
                time.sleep(0.01)
    return found


def both_answer(pair: Any) -> bool:
    """Whether short calls reach both fronts and none is refused."""
    by_front = calls_on_both(pair, 6, max_tokens=2)
    statuses = [call.done().status for calls in by_front.values() for call in calls]
    return all(by_front.values()) and statuses == [200] * 6


def test_it_is_one_server_to_its_clients(pair, until) -> None:
    url = pair.url
    assert len(processes(pair.process.pid, "turret-front")) == 2 == len(processes(pair.process.pid, "turret-engine"))
    before = {name: series(url, name) for name in ("request_success_total", "generation_tokens_total")}
    headers = {"x-request-id": "the same for all"}
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(httpx.post(f"{url}/v1/completions", json=body(max_tokens=7), headers=headers, timeout=60))

    for _ in range(4):
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert [a.status_code for a in answers] == [200] * 16
    assert len({a.json()["choices"][0]["text"] for a in answers}) == 1
    until(lambda: empty(url), 20)
    for _ in range(6):  # whichever front is asked
        assert series(url, "request_success_total") - before["request_success_total"] == 16
        assert series(url, "generation_tokens_total") - before["generation_tokens_total"] == 16 * 7
        assert series(url, "iteration_tokens_total_count") > 0
    assert series(url, "kv_block_lifetime_seconds_count") > 0, "blocks were taken again"
    assert series(url, "cache_config_info") == 2, "one for each engine"
    assert httpx.get(f"{url}/health").status_code == 200


def test_the_bound_on_what_waits_is_one_of_all_fronts(pair, until) -> None:
    """Two run on each of two engines, four wait, and there is no room for more, whichever front is asked."""
    url = pair.url
    short = "Once"  # less than a block has no engine of its own
    begun = series(url, FIRST_TOKENS)
    running = [Call(url, max_tokens=100, prompt=short) for _ in range(4)]
    until(lambda: series(url, FIRST_TOKENS) >= begun + 4, 20)
    waiting = [Call(url, max_tokens=2, prompt=short) for _ in range(16)]
    until(lambda: sum(call.ended > 0 for call in waiting) >= 12, 20)
    assert [call.done().status for call in running] == [200] * 4
    assert sorted(call.done().status for call in waiting) == [200] * 4 + [429] * 12
    until(lambda: empty(url), 20)


@pytest.mark.parametrize("stage", ["queue", "prefill", "decode"])
def test_a_front_that_is_killed_takes_its_own_connections_along_and_nothing_else(pair, until, stage: str) -> None:
    url, main = pair.url, pair.process.pid
    until(lambda: len(processes(main, "turret-front")) == 2 and empty(url), 20)
    counted, begun = series(url, "request_success_total"), series(url, FIRST_TOKENS)
    # Four places. A prompt of 400 tokens is read in one step and a little.
    prompt = "x" * 400 if stage == "prefill" else "Once"
    by_front = calls_on_both(pair, 4, max_tokens=60, prompt=prompt)
    while not all(by_front.values()):  # the system gave all to one
        for calls in by_front.values():
            for call in calls:
                call.connection.sock.shutdown(2)
        until(lambda: empty(url), 30)
        begun = series(url, FIRST_TOKENS)
        by_front = calls_on_both(pair, 4, max_tokens=60, prompt=prompt)
    if stage == "queue":  # four more wait; there is room for them once the first four have begun
        until(lambda: series(url, FIRST_TOKENS) >= begun + 4, 20)
        for pid, calls in calls_on_both(pair, 4, max_tokens=60, prompt=prompt).items():
            by_front[pid] += calls
    if stage == "decode":
        until(lambda: series(url, "num_requests_running") == 4, 20)
    victim, other = by_front
    began = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    for call in by_front[victim]:
        call.join(5)
        assert call.error is not None and call.ended - began < 2, "its connections end at once"
    assert httpx.post(f"{url}/v1/completions", json=body(max_tokens=1), timeout=60).status_code == 200
    assert [call.done().status for call in by_front[other]] == [200] * len(by_front[other])
    until(lambda: empty(url), 20)
    until(lambda: len(set(processes(main, "turret-front")) - {victim}) == 2, 30)
    assert any(f"(process {victim}) was killed by SIGKILL" in line for line in pair.lines)
    until(lambda: httpx.get(f"{url}/health").status_code == 200, 20)
    assert series(url, "request_success_total") >= counted + len(by_front[other]), "counters do not go back"
    assert [Call(url, max_tokens=2).done().status for _ in range(6)] == [200] * 6


def test_an_engine_that_is_killed_ends_its_requests_at_every_front(serve, until, tiny_llama: str) -> None:
    options = ("--api-server-count", "2", "-dp", "2")
    with serve(tiny_llama, *OPTIONS, *options, *fake(devices=2, step_seconds=STEP)) as started:
        started.url = url = started.wait_ready()
        by_front = calls_on_both(started, 8, max_tokens=100)
        until(lambda: series(url, "num_requests_running") == 8, 20)
        began = time.monotonic()
        os.kill(processes(started.process.pid, "turret-engine")[0], signal.SIGKILL)
        calls = [call.done() for calls in by_front.values() for call in calls]
        statuses = sorted(call.status for call in calls)
        assert set(statuses) == {200, 503} and 2 <= statuses.count(503) <= 6
        for call in calls:
            if call.status == 503:
                assert call.ended - began < 2 and "engine 0: the engine process was killed by SIGKILL" in call.text
        assert [httpx.get(f"{url}/health").status_code for _ in range(6)] == [503] * 6
        assert [Call(url, max_tokens=2).done().status for _ in range(6)] == [200] * 6
        victim = processes(started.process.pid, "turret-front")[0]
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(set(processes(started.process.pid, "turret-front")) - {victim}) == 2, 30)
        until(lambda: both_answer(started), 30)
        assert [httpx.get(f"{url}/health").status_code for _ in range(6)] == [503] * 6, "a new front knows it too"
        assert started.stop(signal.SIGTERM) == 0


@pytest.mark.parametrize("victim", ["turret-engine", "turret-worker"])
def test_whoever_is_killed_each_request_in_each_stage_gets_an_answer(
    serve, until, tiny_llama: str, victim: str
) -> None:
    """One request decodes, one is in the middle of its prompt, others wait, at both fronts, some of them streams."""
    options = ("-asc", "2", "--max-num-seqs", "2", "--max-num-batched-tokens", "16", "--max-model-len", "512",
               "--distributed-executor-backend", "mp", "--no-enable-prefix-caching")  # fmt: skip
    with serve(tiny_llama, *OPTIONS, *options, *fake(step_seconds=STEP)) as started:
        started.url = url = started.wait_ready()
        (engine,) = processes(started.process.pid, "turret-engine")
        doomed = engine if victim == "turret-engine" else processes(engine, victim)[0]
        decoding = Call(url, stream=True, prompt="Once")
        until(lambda: series(url, FIRST_TOKENS) == 1, 20)
        prefilling = Call(url, prompt="x" * 450, max_tokens=20)  # 30 steps and more
        until(lambda: series(url, "num_requests_running") == 2, 20)
        waiting: list[Call] = []
        reached: set[int] = set()
        while len(waiting) < 4 or len(reached) < 2:
            by_front = calls_on_both(started, 2, stream=len(waiting) % 4 == 0)
            reached |= {pid for pid, calls in by_front.items() if calls}
            waiting += [call for calls in by_front.values() for call in calls]
        until(lambda: series(url, "num_requests_waiting") == len(waiting), 10)
        assert series(url, FIRST_TOKENS) == 1 and series(url, "num_requests_running") == 2
        began = time.monotonic()
        os.kill(doomed, signal.SIGKILL)
        for call in (decoding, prefilling, *waiting):
            call.done()
            assert call.error is None and call.ended - began < 2, "an answer, at once"
            assert "process was killed by SIGKILL" in call.text
            assert call.status == 503 or call.text.endswith("data: [DONE]\n\n"), "a stream ends as such"
        assert decoding.status == 200
        assert [httpx.get(f"{url}/health").status_code for _ in range(6)] == [503] * 6
        assert [Call(url, max_tokens=2).done().status for _ in range(6)] == [503] * 6
        assert started.stop(signal.SIGTERM) == 0 and "Traceback" not in started.said


def test_one_signal_drains_all_fronts_and_nobody_stays(serve, until, tiny_llama: str, tmp_path: Path) -> None:
    socket = tmp_path / "turret.sock"
    with serve(tiny_llama, *OPTIONS, "--uds", str(socket), "-asc", "3", *fake(step_seconds=STEP)) as started:
        started.wait_ready()
        main = started.process.pid
        pids = [*processes(main, "turret-front"), *processes(main, "turret-engine")]
        assert len(pids) == 4
        answers: list[int] = []

        def ask() -> None:
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), timeout=60) as client:
                answers.append(client.post("http://x/v1/completions", json=body(max_tokens=40)).status_code)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), timeout=60) as client:
            until(lambda: "num_requests_running" in (t := client.get("http://x/metrics").text) and re.search(
                r"turret:num_requests_running{[^}]*} 6.0", t) is not None, 20)
        assert started.stop(signal.SIGINT) == 0
        for thread in threads:
            thread.join(30)
        assert answers == [200] * 6
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        assert not socket.exists() and "Traceback" not in started.said


def test_nobody_outlives_the_main_process_and_idle_costs_nothing(serve, until, tiny_llama: str) -> None:
    with serve(tiny_llama, *OPTIONS, "-asc", "2", *fake(step_seconds=STEP)) as started:
        url = started.wait_ready()
        main = started.process.pid
        pids = [*processes(main, "turret-front"), *processes(main, "turret-engine")]
        before = sum(map(processor_seconds, [main, *pids]))
        time.sleep(IDLE_SECONDS)  # the measurement itself
        assert sum(map(processor_seconds, [main, *pids])) - before <= IDLE_SHARE * IDLE_SECONDS
        call = Call(url, max_tokens=300)
        until(lambda: series(url, "num_requests_running") == 1, 20)
        os.kill(main, signal.SIGKILL)
        call.done()
        assert call.status == 503 and "main process is gone" in call.text
        until(lambda: not [pid for pid in pids if alive(pid)], 20)


def test_a_front_that_cannot_start_ends_the_whole_with_its_reason(serve, tiny_llama: str) -> None:
    options = (*OPTIONS, "-asc", "2", "--generation-config", "/nowhere")
    with serve(tiny_llama, *options) as started:
        assert started.wait() == 2
        assert "--generation-config /nowhere: there is no" in started.lines[-1]


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
