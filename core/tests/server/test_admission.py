"""A full queue and a late one: refused at once with true numbers, never run, and nothing is left behind."""

from __future__ import annotations

import concurrent.futures
import gc
import json
import time

import httpx
import pytest

from turret.errors import QueueFullError, RequestError
from turret.messages import Request
from turret.sampling import SamplingParams
from turret.server.admission import AdmissionQueue, QueueLimits, queue_deadline
from turret.transport import Ledger

ONE_AT_A_TIME = {"step_seconds": 0.02, "max_num_seqs": 1}
LONG = {"prompt": "Hello", "max_tokens": 400}


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def requests(*sizes: int) -> list[Request]:
    return [
        Request(request_id=f"r{i}", prompt_token_ids=[1] * size, sampling=SamplingParams(), max_tokens=1, seed=0)
        for i, size in enumerate(sizes)
    ]


def post(running, headers=None, **fields):
    url = f"{running.url}/v1/completions"
    return httpx.post(url, json={**LONG, "max_tokens": 2, **fields}, headers=headers or {}, timeout=30)


@pytest.fixture
def busy(serve):
    """A server whose only place is taken for seconds, and how to send it more that waits."""

    def make(**options):
        return _Busy(serve, options)

    return make


class _Busy:
    def __init__(self, serve, options):
        self._serving = serve(ONE_AT_A_TIME, **options)
        self._pool = concurrent.futures.ThreadPoolExecutor()

    def __enter__(self):
        self.running = self._serving.__enter__()
        self.open = self.send(max_tokens=400)
        wait_until(lambda: self.stats()["num_running"] == 1 and self.queue.num_requests == 0)
        return self

    def __exit__(self, *fault):
        self.running.in_loop(lambda: self.running.state.lifecycle.expire())
        self._pool.shutdown()
        self._serving.__exit__(*fault)

    @property
    def queue(self):
        return self.running.state.generator.queue

    def stats(self):
        return self.running.in_loop(lambda: self.running.state.parts.client.call("stats"))

    def send(self, headers=None, **fields):
        return self._pool.submit(post, self.running, headers, **fields)


def test_counts_come_and_go():
    now = [0.0]
    queue = AdmissionQueue(QueueLimits(3, 100), lambda: now[0])
    ticket = queue.enter(requests(10, 20))
    assert (queue.num_requests, queue.num_tokens) == (2, 30)
    now[0] = 100.0
    ticket.started("r0")
    ticket.started("r0")
    assert (queue.num_requests, queue.num_tokens) == (1, 20)
    ticket.close()
    ticket.close()
    assert (queue.num_requests, queue.num_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((1, 1), "2 requests wait for their first token, and 2 more would pass the 3 of --max-queue-requests"),
        ((71,), "30 prompt tokens wait for their first token, and 71 more would pass the 100 of --max-queue-tokens"),
    ],
)
def test_a_full_queue_refuses_and_keeps_its_counts(sizes, words):
    queue = AdmissionQueue(QueueLimits(3, 100))
    ticket = queue.enter(requests(10, 20))
    with pytest.raises(QueueFullError, match=words) as refused:
        queue.enter(requests(*sizes))
    assert refused.value.status == 429 and 1 <= refused.value.retry_after <= 60
    assert (queue.num_requests, queue.num_tokens) == (2, 30)
    ticket.close()


def test_front_ends_share_one_bound_and_one_that_is_gone_counts_no_more(tmp_path):
    ledgers = [Ledger(columns=2, rows=2, row=row, path=tmp_path / "ledger") for row in range(2)]
    one, other = (AdmissionQueue(QueueLimits(3, 100), ledger=ledger) for ledger in ledgers)
    ticket = one.enter(requests(10, 20))
    other.enter(requests(5)).started("r0")
    mine = other.enter(requests(5))
    with pytest.raises(QueueFullError, match="3 requests wait for their first token, and 1 more would pass the 3"):
        one.check()
    ledgers[1].clear(0)  # as the main process does when the first front dies
    assert (other.num_requests, other.num_tokens) == (1, 5)
    other.enter(requests(1, 1)).close()
    mine.close()
    assert other.num_requests == 0
    del ticket


def test_an_empty_queue_takes_a_call_of_any_size():
    queue = AdmissionQueue(QueueLimits(1, 5))
    ticket = queue.enter(requests(10, 20))
    with pytest.raises(QueueFullError):
        queue.check()
    ticket.close()
    queue.check()


def test_retry_after_follows_how_long_others_waited():
    now = [0.0]
    queue = AdmissionQueue(QueueLimits(1), lambda: now[0])
    for _ in range(100):
        ticket = queue.enter(requests(1))
        now[0] += 7.0
        ticket.started("r0")
    kept = queue.enter(requests(1))
    with pytest.raises(QueueFullError) as refused:
        queue.check()
    assert refused.value.retry_after == pytest.approx(7.0, abs=1.0)
    kept.close()


def test_a_ticket_that_nobody_used_gives_its_place_back():
    queue = AdmissionQueue(QueueLimits(5))
    ticket = queue.enter(requests(1, 2))
    del ticket
    gc.collect()
    assert (queue.num_requests, queue.num_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("header", "limit", "deadline"),
    [(None, None, None), ("2.5", None, 12.5), (None, 3, 13), ("9", 3, 13), ("1", 3, 11)],
)
def test_the_header_may_only_shorten_the_wait(header, limit, deadline):
    assert queue_deadline(header, limit, 10.0) == deadline


@pytest.mark.parametrize("header", ["", "soon", "nan", "inf", "-1", "0", "1e999"])
def test_a_senseless_timeout_is_refused(tiny, header):
    with pytest.raises(RequestError, match="X-Turret-Queue-Timeout"):
        queue_deadline(header, None, 10.0)
    answer = post(tiny, {"X-Turret-Queue-Timeout": header})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "X-Turret-Queue-Timeout"


def test_past_the_limit_the_answer_is_429_before_the_body_is_read(busy):
    with busy(max_queue_requests=2) as server:
        waiting = [server.send(max_tokens=2) for _ in range(2)]
        wait_until(lambda: server.queue.num_requests == 2)
        for route in ("completions", "chat/completions"):
            answer = httpx.post(f"{server.running.url}/v1/{route}", content=b"this is no JSON")
            error = answer.json()["error"]
            assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
            assert (error["code"], error["type"]) == (429, "RateLimitError")
            assert error["message"].startswith("the queue is full: 2 requests wait for their first token, and 1 more")
        assert server.stats()["num_waiting"] == 2
        server.running.in_loop(lambda: server.running.state.lifecycle.expire())
        assert {w.result().status_code for w in waiting} == {503}
        assert (server.queue.num_requests, server.queue.num_tokens) == (0, 0)


def test_tokens_are_counted_too_and_streams_are_refused_alike(busy):
    with busy(max_queue_tokens=12) as server:
        server.send(max_tokens=2)
        wait_until(lambda: server.queue.num_tokens == 5)
        answer = post(server.running, prompt="Hello my friend", stream=True)
        assert answer.status_code == 429 and "retry-after" in answer.headers
        assert "5 prompt tokens wait" in answer.text and "15 more would pass the 12" in answer.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["option", "header"])
def test_a_request_past_its_deadline_never_runs(busy, stream, how):
    options = {"queue_timeout": 0.2} if how == "option" else {}
    headers = {"X-Turret-Queue-Timeout": "0.2"} if how == "header" else {}
    with busy(**options) as server:
        before = server.stats()["prompt_tokens_total"]
        answer = server.send(headers, stream=stream, n=2, temperature=1.0).result(20)
        error = answer.json()["error"]
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
        assert error["type"] == "ServiceUnavailableError" and "1 requests are running" in error["message"]
        stats = server.stats()
        assert (stats["num_running"], stats["num_waiting"], stats["prompt_tokens_total"]) == (1, 0, before)
        assert (server.queue.num_requests, server.queue.num_tokens) == (0, 0)
        assert not server.open.done(), "the request that had begun goes on, long past the same timeout"


def test_a_deadline_that_is_met_changes_nothing(serve):
    with serve() as running:
        timely, plain = (post(running, headers, stream=True) for headers in ({"X-Turret-Queue-Timeout": "30"}, {}))
        texts = [
            "".join(json.loads(e[6:])["choices"][0]["text"] for e in answer.text.split("\n\n")[:-2])
            for answer in (timely, plain)
        ]
        assert texts[0] == texts[1] == running.answer("Hello", 2)


def tenants_seen(running, monkeypatch, *headers):
    """Tenants of the engine requests that calls with these headers become."""
    client, seen = running.state.parts.client, []
    submit = type(client).submit

    def spy(self, requests):
        seen.extend(r.tenant for r in requests)
        return submit(self, requests)

    monkeypatch.setattr(type(client), "submit", spy)
    for header in headers:
        assert post(running, header).status_code == 200
    return seen


def test_a_header_names_the_tenant_where_keys_tell_nobody_apart(serve, monkeypatch):
    one_key = {"Authorization": "Bearer k"}
    with serve(api_key=["k"]) as running:
        seen = tenants_seen(
            running, monkeypatch, one_key, {**one_key, "X-Turret-Tenant": "a"}, {**one_key, "X-Turret-Tenant": "b"}
        )
    assert len(set(seen)) == 3 and "" not in seen
    with serve() as running:
        seen = tenants_seen(running, monkeypatch, {}, {"X-Turret-Tenant": "a"}, {"X-Turret-Tenant": "a"})
    assert seen[0] == "" and seen[1] == seen[2] != ""


def test_where_keys_tell_clients_apart_no_header_makes_one_many(serve, monkeypatch):
    with serve(api_key=["k", "l"]) as running:
        seen = tenants_seen(
            running, monkeypatch, *({"Authorization": f"Bearer {k}", "X-Turret-Tenant": t} for k in "kl" for t in "ab")
        )
    assert seen[0] == seen[1] != seen[2] == seen[3]
