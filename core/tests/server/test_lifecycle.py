"""Hanging up, draining, stopping now: nobody is left waiting, nothing runs for nobody."""

from __future__ import annotations

import concurrent.futures
import json
import socket
import time

import httpx
import pytest

SLOW = {"step_seconds": 0.02}
BODY = {"prompt": "Hello", "max_tokens": 400}


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def running_requests(running):
    """Ids in the worker's batch and in the scheduler."""
    stats = running.in_loop(lambda: running.state.parts.client.call("stats"))
    return stats["num_running"] + stats["num_waiting"]


@pytest.mark.parametrize("stream", [True, False])
def test_hanging_up_aborts(serve, stream):
    with serve(SLOW) as running:
        host, port = running.url.removeprefix("http://").split(":")
        body = b'{"prompt": "Hello", "max_tokens": 400, "n": 2, "stream": %s}' % (b"true" if stream else b"false")
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        head += b"content-length: %d\r\n\r\n"
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head % len(body) + body)
            wait_until(lambda: running_requests(running) == 2)
        wait_until(lambda: running_requests(running) == 0)
        assert running.state.lifecycle.num_open == 0
        aborted = 'turret:request_success_total{engine="0",finished_reason="abort",model_name="tiny"} 2.0'
        assert aborted in httpx.get(f"{running.url}/metrics").text


def test_draining_finishes_what_runs_and_takes_nothing_new(serve):
    with serve(SLOW, shutdown_timeout=20.0) as running, concurrent.futures.ThreadPoolExecutor() as pool:
        body = {**BODY, "max_tokens": 60}
        open_call = pool.submit(httpx.post, f"{running.url}/v1/completions", json=body, timeout=30)
        wait_until(lambda: running.state.lifecycle.num_open == 1)
        running.stop()
        wait_until(lambda: running.state.lifecycle.draining)
        refused = httpx.post(f"{running.url}/v1/completions", json=body)
        assert refused.status_code == 503 and refused.json()["error"]["type"] == "ServiceUnavailableError"
        assert int(refused.headers["retry-after"]) >= 1
        assert httpx.get(f"{running.url}/health").status_code == 503
        answer = open_call.result(30)
        assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 60
        running.thread.join(10)
        assert not running.thread.is_alive()


@pytest.mark.parametrize("how", ["deadline", "second signal"])
@pytest.mark.parametrize("stream", [True, False])
def test_what_does_not_finish_in_time_gets_an_error(serve, how, stream):
    with (
        serve(SLOW, shutdown_timeout=0.2 if how == "deadline" else 60.0) as running,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        body = {**BODY, "stream": stream}
        open_call = pool.submit(httpx.post, f"{running.url}/v1/completions", json=body, timeout=30)
        wait_until(lambda: running.state.lifecycle.num_open == 1)
        running.stop()
        if how == "second signal":
            wait_until(lambda: running.state.lifecycle.draining)
            running.stop()
        answer = open_call.result(10)
        assert "shutting down" in answer.text
        if stream:
            assert answer.status_code == 200 and answer.text.endswith("data: [DONE]\n\n")
        else:
            assert answer.status_code == 503
        running.thread.join(10)
        assert not running.thread.is_alive()


def test_priority_needs_the_policy(serve):
    with serve(scheduling_policy="priority") as running:
        answer = httpx.post(f"{running.url}/v1/completions", json={"prompt": "x", "max_tokens": 1, "priority": -5})
        assert answer.status_code == 200


@pytest.mark.parametrize(("policy", "words"), [("fcfs", "first come, first served"), ("fair", "fair between tenants")])
def test_priority_is_refused_where_nobody_looks_at_it(serve, policy, words):
    with serve(scheduling_policy=policy) as running:
        answer = httpx.post(f"{running.url}/v1/completions", json={"prompt": "x", "max_tokens": 1, "priority": -5})
        assert answer.status_code == 400 and words in answer.text


def test_a_reused_request_id_is_no_clash(serve):
    with serve(SLOW) as running, concurrent.futures.ThreadPoolExecutor() as pool:
        calls = [
            pool.submit(
                httpx.post, f"{running.url}/v1/completions", json={"prompt": "Hello", "max_tokens": 20},
                headers={"X-Request-Id": "same"}, timeout=30,
            )
            for _ in range(3)
        ]  # fmt: skip
        answers = [call.result(30) for call in calls]
    assert [a.status_code for a in answers] == [200] * 3
    assert {a.json()["id"] for a in answers} == {"cmpl-same"}


def test_stream_interval_gathers_tokens(serve):
    with serve(stream_interval=4) as running:
        body = {"prompt": "Hello", "max_tokens": 11, "stream": True, "logprobs": 0, "return_token_ids": True}
        events = httpx.post(f"{running.url}/v1/completions", json=body).text.split("\n\n")[:-2]
        choices = [json.loads(e.removeprefix("data: "))["choices"][0] for e in events]
        assert [len(c["token_ids"]) for c in choices] == [1, 4, 4, 2]
        assert [len(c["logprobs"]["tokens"]) for c in choices] == [1, 4, 4, 2]
        assert "".join(c["text"] for c in choices) == running.answer("Hello", 11)


def test_requests_are_logged_when_asked_for(serve, caplog):
    caplog.set_level("DEBUG", "turret.server")
    with serve(enable_log_requests=True, max_log_len=3) as running:
        httpx.post(f"{running.url}/v1/completions", json={"prompt": "Hello", "max_tokens": 2, "request_id": "mine"})
    said = [r.getMessage() for r in caplog.records if "mine" in r.getMessage()]
    assert "prompts of 5 tokens" in said[0] and said[1] == "request mine: 'Hel'"
    caplog.clear()
    with serve() as running:
        httpx.post(f"{running.url}/v1/completions", json={"prompt": "Hello", "max_tokens": 2, "request_id": "mine"})
    assert not any("mine" in r.getMessage() for r in caplog.records)


def test_outputs_are_logged_when_asked_for(serve, caplog, until):
    caplog.set_level("INFO", "turret.server")
    options = {"enable_log_requests": True, "enable_log_outputs": True, "max_log_len": 4}
    with serve(SLOW, **options) as running:
        body = {"prompt": "Hello", "max_tokens": 6, "n": 2, "request_id": "mine"}
        texts = [c["text"] for c in httpx.post(f"{running.url}/v1/completions", json=body).json()["choices"]]
        said = [r.getMessage() for r in caplog.records if "choice" in r.getMessage()]
        assert sorted(said) == [f"request mine: choice {i} (length): {t[:4]!r}" for i, t in enumerate(texts)]
        caplog.clear()
        with httpx.stream("POST", f"{running.url}/v1/completions", json={**BODY, "stream": True}) as stream:
            next(stream.iter_text())
        until(lambda: any("choice 0 (unfinished)" in r.getMessage() for r in caplog.records))


def test_stacks_of_errors_are_logged_when_asked_for(serve, caplog):
    for asked in (False, True):
        caplog.clear()
        with serve({"fault": "request", "fault_step": 3}, log_error_stack=asked) as running:
            assert httpx.post(f"{running.url}/v1/completions", json={"prompt": ""}).status_code == 400
            streamed = httpx.post(f"{running.url}/v1/completions", json={**BODY, "stream": True})
            assert "out of memory for this request" in streamed.text
        assert len([r for r in caplog.records if r.exc_info]) == 2 * asked
