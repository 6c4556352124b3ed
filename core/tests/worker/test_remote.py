"""A worker in a process of its own: the same answers, plain frames, and its death noticed at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import tiny

from turret.errors import ConfigError, EngineDeadError, EngineError
from turret.messages import StepPlan
from turret.worker.local import LocalWorker
from turret.worker.remote import RemoteWorker, WorkerSpawn

ENTRY = "tiny:build_in_child"


@pytest.fixture
def remote():
    workers = []

    def make(entry: str = ENTRY, **options) -> RemoteWorker:
        workers.append(RemoteWorker(WorkerSpawn(entry, json.dumps(options))))
        return workers[-1]

    yield make
    for worker in workers:
        worker.shutdown()


def asked():
    return [tiny.request("a", [4, 5, 6], logprobs=1), tiny.request("b", [9] * 20, temperature=1.0, prompt_logprobs=1)]


def test_a_remote_worker_answers_as_a_local_one(remote):
    local = tiny.Driver(LocalWorker(tiny.parts(), tiny.dummy_source(), tiny.limits()))
    local.run(asked(), 6, chunk=8)
    worker = remote()
    driver = tiny.Driver(worker, depth=2)
    driver.run(asked(), 6, chunk=8)
    assert driver.results == local.results
    assert driver.facts.groups == local.facts.groups and driver.facts.num_blocks == local.facts.num_blocks
    assert worker.call("pid", []) == worker.pid != os.getpid()
    assert worker.call("health", [])["ok"]
    with pytest.raises(EngineError, match="no method 'nonsense'"):
        worker.call("nonsense", [])
    local.worker.shutdown()


def test_progress_and_start_failures_cross_as_they_are(remote):
    seen = []
    remote().start(lambda stage, fraction: seen.append((stage, fraction)))
    assert ("loading weights", 1.0) in seen
    with pytest.raises(EngineError, match="start_worker was told to fail"):
        remote(fail=["start_worker"]).start()
    with pytest.raises(ConfigError, match="no function 'absent'"):
        remote(entry="tiny:absent").start()


@pytest.mark.parametrize("busy", [False, True])
def test_a_killed_worker_is_noticed_at_once(remote, busy):
    worker = remote()
    driver = tiny.Driver(worker)
    driver.run(asked(), 2)
    if busy:
        worker.submit(StepPlan(step_id=900))
        worker.submit(StepPlan(step_id=901))
    os.kill(worker.pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
        for step in range(1000):  # what was already answered may still come
            worker.submit(StepPlan(step_id=step))
            worker.collect(timeout=30)
    assert time.monotonic() - began < 5
    with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
        worker.call("health", [])


def test_a_worker_that_dies_in_a_forward_is_noticed_while_waiting(remote):
    """The platform kills its process in the third forward (two are trials)."""
    driver = tiny.Driver(remote(die_at_step=3))
    with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
        driver.run(asked(), 2)


def test_a_worker_does_not_outlive_its_parent():
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "import os\nfrom turret.worker.remote import RemoteWorker, WorkerSpawn\n"
        f"w = RemoteWorker(WorkerSpawn({ENTRY!r}, '{{}}')); w.start()\n"
        "print(w.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=120)
    child = int(done.stdout)
    deadline = time.monotonic() + 10
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    """False for a process that ended, reaped or not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_parents_side_needs_no_torch():
    code = "import sys, turret.worker.remote, turret.worker.setup, turret.worker.serve; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    assert done.stdout.strip() == "False"
