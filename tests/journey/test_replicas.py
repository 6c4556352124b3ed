"""Several devices: where replicas are put, how requests are spread over them, and what the loss of one costs.

Placement is read off what each engine found on its device (its memory gives the size of its cache), not off the option.
"""

from __future__ import annotations

import itertools
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

from turret import LLM, SamplingParams
from turret.errors import ConfigError, EngineDeadError

GIB = 1 << 30
BYTES_PER_BLOCK = 2 * 3 * 2 * 16 * 16 * 4
"""Keys and values, 3 layers, 2 heads of 16, 16 tokens, float32."""
STEP = 0.05
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
OPTIONS = ("--device", "fake", "--served-model-name", "tiny", "--kv-cache-memory-bytes", "8M")


def settings(**values: object) -> list[str]:
    return [f"platform:fake.{name}={value}" for name, value in values.items()]


def fake(**values: object) -> list[str]:
    """The fake device's options on a command line."""
    return ["--plugin-config", *settings(**values)]


def body(prompt: object = "Once upon a time", **changes: object) -> dict[str, object]:
    return {"prompt": prompt, "max_tokens": 400, "ignore_eos": True, "temperature": 0, **changes}


def series(url: str, name: str) -> list[float]:
    """One series of each engine, in order."""
    text = httpx.get(f"{url}/metrics").text
    found = re.findall(rf'^turret:{name}{{engine="(\d+)",model_name="tiny"}} (\S+)$', text, re.MULTILINE)
    assert found, f"no series turret:{name}"
    return [float(value) for _, value in sorted(found)]


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for task in tasks for child in task.read_text().split())


class Call(threading.Thread):
    """A request read to its end, and when that was."""

    def __init__(self, url: str, **changes: object) -> None:
        super().__init__(daemon=True)
        self._url, self._body = url, body(**changes)
        self.answer: httpx.Response | None = None
        self.ended = 0.0
        self.start()

    def run(self) -> None:
        self.answer = httpx.post(f"{self._url}/v1/completions", json=self._body, timeout=120)
        self.ended = time.monotonic()

    def status(self) -> int:
        self.join(60)
        assert not self.is_alive(), "a client hangs"
        assert self.answer is not None, "the connection broke"
        return self.answer.status_code


@pytest.fixture
def replicas(tiny_llama: str) -> Callable[..., LLM]:
    """The tiny model on several fake devices, offline."""

    def start(size: int, *config: str, **options: object) -> LLM:
        chosen: dict[str, Any] = {"device": "fake", "max_model_len": 128, "kv_cache_memory_bytes": 4 << 20, **options}
        return LLM(tiny_llama, data_parallel_size=size, plugin_config=list(config), **chosen)

    return start


@pytest.fixture(scope="module")
def two(serve: Callable[..., Any], tiny_llama: str) -> Iterator[str]:
    """A server on two devices, for tests that leave it empty."""
    with serve(tiny_llama, *OPTIONS, "-dp", "2", *fake(devices=2, step_seconds=STEP)) as started:
        yield started.wait_ready()


# -- placement ---------------------------------------------------------------------------------------------------------


def cache_bytes(llm: LLM) -> list[int]:
    return [ready.num_blocks * BYTES_PER_BLOCK for ready in llm._parts.engine.engines]


def test_four_replicas_on_four_devices_each_with_the_memory_of_its_own(replicas) -> None:
    config = settings(devices=4, memory_bytes=[GIB, 2 * GIB, 3 * GIB, 4 * GIB])
    with replicas(4, *config, kv_cache_memory_bytes=None, gpu_memory_utilization=0.25) as llm:
        sizes = cache_bytes(llm)
        assert [b - a for a, b in itertools.pairwise(sizes)] == pytest.approx([GIB / 4] * 3, rel=0.1)
        facts = [ready.facts for ready in llm._parts.engine.engines]
        assert [f["device_name"] for f in facts] == [f"Fake device {i}" for i in range(4)]
        assert len({f["worker_pid"] for f in facts} | {os.getpid()}) == 5
        prompts = [{"prompt_token_ids": [(7 * i + j) % 250 + 2 for j in range(40)]} for i in range(12)]
        outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
        assert all(len(o.outputs[0].token_ids) == 8 for o in outputs)
        ran = [engine.stats.generation_tokens_total for engine in llm._parts.engine._client.engines]
        assert sum(ran) == 12 * 8 and min(ran) >= 8, "every device had a part of it"


def test_the_devices_that_were_named_are_used_in_that_order(replicas) -> None:
    config = settings(devices=4, memory_bytes=[GIB, 2 * GIB, 3 * GIB, 4 * GIB])
    with replicas(2, *config, kv_cache_memory_bytes=None, gpu_memory_utilization=0.25, device="fake:3,1") as llm:
        large, small = cache_bytes(llm)
        assert large - small == pytest.approx(2 * GIB / 4, rel=0.1)


@pytest.mark.parametrize("executor", ["uni", "mp"])
def test_replicas_answer_as_one_engine_does(replicas, tiny_llama: str, executor: str) -> None:
    prompts = [{"prompt_token_ids": [(11 * i + j) % 250 + 2 for j in range(20 + i)]} for i in range(6)]
    with LLM(tiny_llama, device="fake", max_model_len=128, kv_cache_memory_bytes=4 << 20) as alone:
        expected = [o.outputs[0].token_ids for o in alone.generate(prompts, GREEDY, use_tqdm=False)]
    with replicas(2, *settings(devices=2), distributed_executor_backend=executor) as llm:
        got = [o.outputs[0].token_ids for o in llm.generate(prompts, GREEDY, use_tqdm=False)]
        assert llm.reset_prefix_cache() is True
        assert {m.name: m.value for m in llm.get_metrics()}["turret:generation_tokens_total"] == 6 * 8
    assert got == expected


@pytest.mark.parametrize(
    ("size", "options", "words"),
    [
        (3, {}, r"--data-parallel-size 3 needs as many devices, .* fake has 2: fake:0 \(Fake device 0\), fake:1"),
        (2, {"device": "cpu"}, r"--data-parallel-size 2 needs as many devices, .* platform cpu has 1: cpu:0"),
        (2, {"device": "fake:1"}, r"names 1 different devices for --data-parallel-size 2"),
        (2, {"device": "fake:1,1"}, r"names 1 different devices for --data-parallel-size 2"),
        (2, {"device": "fake:0,2"}, r"--device fake:2 is not there; found fake:0, fake:1"),
        (2, {"disable_frontend_multiprocessing": True}, r"needs engines in processes of their own"),
    ],
)  # fmt: skip
def test_devices_that_are_not_there(replicas, size: int, options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replicas(size, *settings(devices=2), **options)


def test_a_device_that_fails_at_the_start_is_named_and_nobody_stays(replicas) -> None:
    with pytest.raises(Exception, match=r"engine 1: .*start_worker was told to fail"):
        replicas(2, *settings(devices=2, faulty_device=1, fail='["start_worker"]'))
    assert not [pid for pid in children(os.getpid()) if b"turret-engine" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_offline_a_device_that_dies_ends_the_call(replicas) -> None:
    dying = settings(devices=2, faulty_device=1, die_at_step=6)
    with replicas(2, *dying) as llm, pytest.raises(EngineDeadError, match=r"engine 1: .*SIGKILL"):
        llm.generate([{"prompt_token_ids": [i + 2] * 20} for i in range(8)], GREEDY, use_tqdm=False)


# -- spreading ---------------------------------------------------------------------------------------------------------


def test_requests_are_spread_and_choices_of_one_prompt_stay_together(two: str, until) -> None:
    before = series(two, "prompt_tokens_total")
    calls = [Call(two, prompt=f"{i} is a number", max_tokens=30) for i in range(8)]
    until(lambda: sum(series(two, "num_requests_running")) == 8, 20)
    assert series(two, "num_requests_running") == [4, 4]
    assert [call.status() for call in calls] == [200] * 8
    assert min(b - a for a, b in zip(before, series(two, "prompt_tokens_total"), strict=True)) > 0
    until(lambda: series(two, "num_requests_running") == [0, 0], 10)
    call = Call(two, n=4, max_tokens=30, temperature=1.0, prompt="x" * 64)
    until(lambda: sum(series(two, "num_requests_running")) == 4, 20)
    assert sorted(series(two, "num_requests_running")) == [0, 4]
    assert call.status() == 200
    prompts = Call(two, prompt=[f"{i} of six prompts in one call" for i in range(6)], max_tokens=10)
    assert prompts.status() == 200
    assert len(prompts.answer.json()["choices"]) == 6  # type: ignore[union-attr]


def test_equal_beginnings_meet_on_one_device(two: str) -> None:
    hits = series(two, "prefix_cache_hits_total")
    for i in range(4):
        prompt = f"A story that begins the same each time, and goes on: {i}"
        assert Call(two, prompt=prompt, max_tokens=2).status() == 200
    gained = [b - a for a, b in zip(hits, series(two, "prefix_cache_hits_total"), strict=True)]
    assert sorted(gained)[0] == 0 and sorted(gained)[1] >= 3 * 48


def test_a_client_that_leaves_is_dropped_where_its_request_runs(two: str, until) -> None:
    asked = body(n=2, stream=True, temperature=1.0)
    with httpx.stream("POST", f"{two}/v1/completions", json=asked, timeout=60) as stream:
        chunks = stream.iter_raw()  # kept: an iterator that is dropped closes the stream
        next(chunks)
        until(lambda: sum(series(two, "num_requests_running")) == 2, 20)
    until(lambda: series(two, "num_requests_running") == [0, 0] == series(two, "kv_cache_usage_perc"), 10)


# -- the loss of one ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["engine", "worker"])
def test_a_replica_that_is_killed_ends_its_requests_and_no_others(serve, until, tiny_llama: str, victim: str) -> None:
    options = (*OPTIONS, "-dp", "2", "--max-num-seqs", "2", "--distributed-executor-backend", "mp")
    with serve(tiny_llama, *options, *fake(devices=2, step_seconds=STEP)) as started:
        url = started.wait_ready()
        calls = [Call(url, prompt=f"{i} is a number", max_tokens=100, stream=bool(i % 2)) for i in range(8)]
        until(lambda: series(url, "num_requests_running") == [2, 2], 20)
        engine = children(started.process.pid)[0]
        killed = engine if victim == "engine" else children(engine)[0]
        began = time.monotonic()
        os.kill(killed, signal.SIGKILL)
        until(lambda: httpx.get(f"{url}/health").status_code == 503, 5)
        until(lambda: sum(not call.is_alive() for call in calls) == 4, 5)
        assert time.monotonic() - began < 2
        late = Call(url, prompt="a new one", max_tokens=3)
        assert late.status() == 200, "the other engine serves on"
        ended = [call for call in calls if call.ended and call.ended - began < 2]
        for call in calls:
            call.status()
            assert call.answer is not None
            said = call.answer.text
            assert ("was killed by SIGKILL" in said) == (call in ended), said
        until(lambda: series(url, "kv_cache_usage_perc")[1] == 0, 10)
        assert series(url, "num_requests_running")[1] == 0
        assert any("the other 1 go on" in line for line in started.lines)
        assert started.stop(signal.SIGTERM) == 0
        assert "Traceback" not in started.said


def test_a_device_that_fails_in_the_middle_of_a_step(serve, tiny_llama: str) -> None:
    options = (*OPTIONS, "-dp", "2", *fake(devices=2, step_seconds=STEP, faulty_device=1, die_at_step=30))
    with serve(tiny_llama, *options) as started:
        url = started.wait_ready()
        calls = [Call(url, prompt=f"{i} is a number", max_tokens=60) for i in range(6)]
        statuses = [call.status() for call in calls]
        assert statuses.count(200) == 3 == statuses.count(503), statuses
        assert httpx.get(f"{url}/health").status_code == 503
        os.kill(children(started.process.pid)[0], signal.SIGKILL)
        deadline = time.monotonic() + 5
        while (code := Call(url, max_tokens=1).status()) == 200 and time.monotonic() < deadline:
            pass
        assert code == 503, "now nobody is left"
