"""Faults around `turret serve`: clients that leave, processes that die, signals, and what an idle server costs.

The pretend device takes its time for every step, so requests last as long as a test needs and cost no processor time.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

STEP = 0.1
OPTIONS = ("--device", "fake", "--served-model-name", "tiny", "--kv-cache-memory-bytes", "8M")
IDLE_SECONDS = 5.0
IDLE_SHARE = 0.01
"""Of one core, for all processes together."""


def fake(**values: object) -> list[str]:
    """The fake device's options."""
    return ["--plugin-config", *(f"platform:fake.{name}={value}" for name, value in values.items())]


def body(**changes: object) -> dict[str, object]:
    """A request of 400 steps."""
    return {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, **changes}


class Metrics:
    """What /metrics says of the engine."""

    def __init__(self, url: str) -> None:
        self._text = httpx.get(f"{url}/metrics").text

    def __getattr__(self, name: str) -> float:
        found = re.search(rf"^turret:{name}{{[^}}]*}} (\S+)$", self._text, re.MULTILINE)
        assert found, f"no series turret:{name}"
        return float(found[1])

    @property
    def steps(self) -> float:
        return self.__getattr__("iteration_tokens_total_count")

    @property
    def empty(self) -> bool:
        return self.num_requests_running == self.num_requests_waiting == self.kv_cache_usage_perc == 0


@pytest.fixture(scope="module")
def url(serve: Callable[..., Any], tiny_llama: str) -> Iterator[str]:
    """A server for tests that leave it empty."""
    with serve(tiny_llama, *OPTIONS, *fake(step_seconds=STEP)) as started:
        yield started.wait_ready()


@pytest.fixture
def empty(url: str, until: Callable[..., None]) -> Iterator[str]:
    """The server's URL; afterwards nothing may be left of the test."""
    yield url
    until(lambda: Metrics(url).empty, 20)


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def assert_idle(*pids: int) -> None:
    """All these processes together take less than their share of a core."""
    before = sum(map(processor_seconds, pids))
    time.sleep(IDLE_SECONDS)  # the measurement itself
    assert sum(map(processor_seconds, pids)) - before <= IDLE_SHARE * IDLE_SECONDS


def raw_request(url: str, **changes: object) -> socket.socket:
    """A connection on which a completion was asked for."""
    host, port = re.fullmatch(r"http://([\d.]+):(\d+)", url).groups()
    content = json.dumps(body(**changes)).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(content) + content)
    return connection


def start_streams(url: str, count: int) -> list[threading.Thread]:
    """Streams that are read to their end in threads; each thread's `text` is what came."""

    def read(thread_body: dict[str, object]) -> None:
        thread = threading.current_thread()
        answer = httpx.post(f"{url}/v1/completions", json=thread_body, timeout=120)
        thread.answer = answer  # type: ignore[attr-defined]

    threads = [threading.Thread(target=read, args=(body(stream=bool(i % 2)),)) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> list[httpx.Response]:
    for thread in threads:
        thread.join(15)
        assert not thread.is_alive(), "a client hangs"
    return [thread.answer for thread in threads]  # type: ignore[attr-defined]


def assert_died(url: str, threads: list[threading.Thread], reason: str) -> None:
    """Whole answers are 503, streams end with an error, the server says it is unwell, and new requests get 503."""
    for answer in join(threads):
        if answer.headers["content-type"].startswith("text/event-stream"):
            *_, error, done = answer.text.strip().split("\n\n")
            assert done == "data: [DONE]"
            assert reason in json.loads(error.removeprefix("data: "))["error"]["message"]
        else:
            assert answer.status_code == 503 and reason in answer.json()["error"]["message"]
    assert httpx.get(f"{url}/health").status_code == 503
    assert httpx.post(f"{url}/v1/completions", json=body()).status_code == 503


# -- clients that leave ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_leaves_gives_its_blocks_back_at_once(
    empty: str, until: Callable[..., None], stream: bool
) -> None:
    with httpx.stream("POST", f"{empty}/v1/completions", json=body(stream=True), timeout=60) as other:
        chunks = other.iter_raw()  # kept: an iterator that is dropped closes the stream
        next(chunks)
        leaving = raw_request(empty, stream=stream, prompt="x" * 100)
        until(lambda: Metrics(empty).num_requests_running == 2, 20)
        before = Metrics(empty)
        leaving.close()
        seen: list[Metrics] = []

        def gone() -> bool:
            seen.append(Metrics(empty))
            return seen[-1].num_requests_running == 1

        until(gone, 20)
        # One step may be under way, one be planned ahead, and the numbers come with the step after.
        assert seen[-1].steps - before.steps <= 4, "it took more than the steps that were under way"
        assert seen[-1].kv_cache_usage_perc < before.kv_cache_usage_perc / 2


def test_a_client_that_closes_its_half_has_left(empty: str) -> None:
    """Nobody can tell it from one that is gone; its connection is closed, so it waits for nothing."""
    for stream in (True, False):
        with raw_request(empty, stream=stream) as connection:
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(20)
            while connection.recv(65536):
                pass


def test_half_a_request_holds_up_nobody(empty: str) -> None:
    host, port = re.fullmatch(r"http://([\d.]+):(\d+)", empty).groups()
    with socket.create_connection((host, int(port))) as half:
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        assert httpx.post(f"{empty}/v1/completions", json=body(max_tokens=2)).status_code == 200
    assert httpx.get(f"{empty}/health").status_code == 200


def test_a_client_that_does_not_read_holds_up_nobody(empty: str, until: Callable[..., None]) -> None:
    with raw_request(empty, stream=True, n=4, logprobs=5):
        until(lambda: Metrics(empty).num_requests_running == 4, 20)
        assert httpx.post(f"{empty}/v1/completions", json=body(max_tokens=3)).status_code == 200


# -- processes that die ------------------------------------------------------------------------------------------------


def test_a_worker_process_that_is_killed_and_what_an_idle_one_costs(serve, until, tiny_llama: str) -> None:
    options = (*OPTIONS, "--distributed-executor-backend", "mp", *fake(step_seconds=STEP))
    with serve(tiny_llama, *options) as started:
        url = started.wait_ready()
        assert httpx.post(f"{url}/v1/completions", json=body(max_tokens=2)).status_code == 200
        (engine,) = started.children()
        (worker,) = children(engine)
        assert_idle(started.process.pid, engine, worker)
        threads = start_streams(url, 3)
        until(lambda: Metrics(url).num_requests_running == 3, 20)
        os.kill(worker, signal.SIGKILL)
        assert_died(url, threads, "worker process was killed by SIGKILL")
        until(lambda: any("the engine is gone" in line for line in started.lines), 10, lambda: started.said)
        assert started.stop(signal.SIGTERM) == 0
        assert "Traceback" not in started.said


def test_an_engine_that_dies_in_the_middle_of_a_step(serve, tiny_llama: str, until) -> None:
    options = (*OPTIONS, *fake(step_seconds=STEP, die_at_step=30))
    with serve(tiny_llama, *options) as started:
        url = started.wait_ready()
        assert_died(url, start_streams(url, 3), "SIGKILL")
        assert started.stop(signal.SIGTERM) == 0
        assert "Traceback" not in started.said


def test_an_engine_whose_worker_died_while_idle_says_so(serve, until, tiny_llama: str) -> None:
    options = (*OPTIONS, "--distributed-executor-backend", "mp")
    with serve(tiny_llama, *options) as started:
        url = started.wait_ready()
        (engine,) = started.children()
        (worker,) = children(engine)
        os.kill(worker, signal.SIGKILL)
        until(lambda: httpx.get(f"{url}/health").status_code == 503, 10)


def test_nobody_outlives_the_server(serve, until, tiny_llama: str) -> None:
    with serve(tiny_llama, *OPTIONS, "--distributed-executor-backend", "mp") as started:
        started.wait_ready()
        (engine,) = started.children()
        (worker,) = children(engine)
        started.process.kill()
        started.process.wait()
        until(lambda: not alive(engine) and not alive(worker), 20)


def test_compute_threads_rest_when_there_is_nothing_to_compute(serve, tiny_llama: str) -> None:
    with serve(tiny_llama, "--device", "cpu", "--kv-cache-memory-bytes", "8M", "--cpu-threads", "2") as started:
        url = started.wait_ready()
        assert httpx.post(f"{url}/v1/completions", json=body(max_tokens=20)).status_code == 200
        assert_idle(started.process.pid, *started.children())


# -- signals -----------------------------------------------------------------------------------------------------------


def test_sigterm_lets_streams_finish_and_takes_nothing_new(serve, until, tiny_llama: str) -> None:
    with serve(tiny_llama, *OPTIONS, *fake(step_seconds=STEP)) as started:
        url = started.wait_ready()
        with httpx.stream("POST", f"{url}/v1/completions", json=body(stream=True, max_tokens=80), timeout=60) as stream:
            chunks = stream.iter_lines()
            next(chunks)
            with httpx.Client() as second:
                assert second.get(f"{url}/health").status_code == 200  # a connection that is there already
                started.process.send_signal(signal.SIGTERM)
                until(lambda: "stopping" in started.said, 10, lambda: started.said)
                assert second.post(f"{url}/v1/completions", json=body()).status_code == 503
            events = [line.removeprefix("data: ") for line in chunks if line]
        assert events[-1] == "[DONE]"
        assert json.loads(events[-2])["choices"][0]["finish_reason"] == "length"
        assert started.process.wait(20) == 0


def test_sigterm_ends_what_does_not_finish_in_time(serve, until, tiny_llama: str) -> None:
    with serve(tiny_llama, *OPTIONS, "--shutdown-timeout", "0.5", *fake(step_seconds=STEP)) as started:
        url = started.wait_ready()
        threads = start_streams(url, 2)
        until(lambda: Metrics(url).num_requests_running == 2, 20)
        started.process.send_signal(signal.SIGTERM)
        whole, stream = join(threads)
        assert whole.status_code == 503 and '"error"' in stream.text and stream.text.endswith("data: [DONE]\n\n")
        assert started.process.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_during_the_start_leaves_nothing_behind(serve, until, tiny_llama: str, number: int) -> None:
    options = (*OPTIONS, "--distributed-executor-backend", "mp", *fake(step_seconds=60))  # a start that lasts
    with serve(tiny_llama, *options) as started:
        until(lambda: any(children(pid) for pid in started.children()), 60, lambda: started.said)
        (engine,) = started.children()
        (worker,) = children(engine)
        assert started.stop(number) in (130, -number)
        until(lambda: not alive(engine) and not alive(worker), 20)
        assert "Traceback" not in started.said


@pytest.mark.slow
def test_an_engine_that_hangs_is_ended_by_force(serve, until, tiny_llama: str) -> None:
    with serve(tiny_llama, *OPTIONS, "--shutdown-timeout", "0.5", *fake(step_seconds=STEP)) as started:
        url = started.wait_ready()
        threads = start_streams(url, 2)
        until(lambda: Metrics(url).num_requests_running == 2, 20)
        (engine,) = started.children()
        os.kill(engine, signal.SIGSTOP)
        started.process.send_signal(signal.SIGTERM)
        assert [answer.status_code for answer in join(threads)] == [503, 200]
        assert started.wait(60) == 0 and not alive(engine)


# -- starts that fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        (fake(fail='["probe"]'), 1, "(turret-platform-fake 0.1.0) failed at probe"),
        (["--distributed-executor-backend", "mp", *fake(fail='["start_worker"]')], 1, "failed at start_worker"),
        (fake(devices=-1), 2, "-1 is less than the minimum"),
        (["--device", "fake:3"], 2, "--device fake:3 is not there; found fake:0"),
        (["--distributed-executor-backend", "mp", *fake(die_at_step=1)], 1, "worker process was killed by SIGKILL"),
    ],
    ids=["probe fails", "worker fails", "wrong option", "no such device", "worker dies"],
)
def test_a_start_that_fails_says_why_in_one_line(
    serve, tiny_llama: str, options: list[str], status: int, sentence: str
) -> None:
    with serve(tiny_llama, *OPTIONS, *options) as started:
        assert started.wait() == status
        errors = [line for line in started.lines if "error" in line.lower()]
        assert len(errors) == 1 and errors[0].startswith("turret: error: ") and sentence in errors[0]
        assert "Traceback" not in started.said
