"""Processes that are killed: the client always gets an answer, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading

import httpx
import pytest

pytestmark = pytest.mark.model

BODY = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True}
RUNNING = 'num_requests_running{engine="0",model_name="demo"} '


@pytest.fixture
def started(serve):
    with serve("demo", "--kv-cache-memory-bytes", "256M") as started:
        yield started


def test_a_killed_engine_answers_everybody(started, until):
    url = started.wait_ready()
    answers: dict[bool, httpx.Response] = {}

    def ask(stream: bool) -> None:
        answers[stream] = httpx.post(f"{url}/v1/completions", json={**BODY, "stream": stream}, timeout=120)

    calls = [threading.Thread(target=ask, args=(stream,)) for stream in (True, False)]
    for call in calls:
        call.start()
    until(lambda: RUNNING + "2.0" in httpx.get(f"{url}/metrics").text, 60)
    (engine,) = started.children()
    os.kill(engine, signal.SIGKILL)
    for call in calls:
        call.join(10)
        assert not call.is_alive(), "a request hangs although its engine is dead"
    assert answers[False].status_code == 503 and "SIGKILL" in answers[False].json()["error"]["message"]
    assert answers[True].status_code == 200 and answers[True].text.endswith("data: [DONE]\n\n")
    assert '"error"' in answers[True].text.split("\n\n")[-3]
    assert httpx.get(f"{url}/health").status_code == 503
    assert httpx.post(f"{url}/v1/completions", json=BODY).status_code == 503
    until(lambda: any("the engine is gone" in line for line in started.lines), 10, lambda: started.said)
    assert started.stop(signal.SIGTERM) == 0


def test_an_engine_killed_while_loading_is_told_at_once(serve, until):
    with serve("demo") as started:
        until(lambda: bool(started.children()), 60, lambda: started.said)
        os.kill(started.children()[0], signal.SIGKILL)
        assert started.process.wait(60) == 1
        until(lambda: "turret: error: " in started.said, 5, lambda: started.said)
        assert "SIGKILL" in started.said and "Traceback" not in started.said
