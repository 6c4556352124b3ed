"""Bounds of connections: heads, headers, dawdling clients, too many at a time; none of them hurts the others."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import time

import httpx
import pytest

SLOW = {"step_seconds": 0.02}


@contextlib.contextmanager
def connected(running):
    host, port = running.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        yield connection


def everything(connection) -> bytes:
    """What comes until the server closes."""
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def message(answer: bytes) -> str:
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["message"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_head_too_large(serve, whole):
    with serve(h11_max_incomplete_event_size=3000) as running:
        with connected(running) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nlong: " + b"y" * 4000 + b"\r\n\r\n" * whole)
            answer = everything(connection)
        assert status(answer) == 431 and "3000 bytes" in message(answer)
        assert httpx.get(f"{running.url}/health", headers={"long": "y" * 2000}).status_code == 200


def test_a_head_that_never_ends_is_cut_at_the_bound(tiny):
    with connected(tiny) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 64 << 20:
                sent += connection.send(b"x: " + b"y" * (1 << 16))
        assert sent < 16 << 20


def test_too_many_headers(serve):
    with serve(h11_max_header_count=20) as running:
        with connected(running) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\n" + b"".join(b"h%d: 1\r\n" % i for i in range(21)) + b"\r\n")
            answer = everything(connection)
        assert status(answer) == 431 and "at most 20 headers" in message(answer)
        assert httpx.get(f"{running.url}/health").status_code == 200


def test_what_is_not_http_gets_an_answer_and_no_line_in_the_log(tiny, caplog):
    caplog.set_level(logging.INFO)
    with connected(tiny) as connection:
        connection.sendall(b"\x16\x03\x01nonsense\r\n\r\n")
        answer = everything(connection)
    assert status(answer) == 400 and json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["type"] == "Bad Request"
    assert not caplog.records


def test_an_upgrade_nobody_speaks_is_answered_as_it_stands(tiny):
    body = b'{"prompt": "Hello", "max_tokens": 2}'
    head = (
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\nupgrade: h2c\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
    )
    with connected(tiny) as connection:
        connection.sendall(head % len(body) + body)
        assert status(everything(connection)) == 200


def test_it_is_no_proxy(tiny):
    with connected(tiny) as connection:
        connection.sendall(b"CONNECT example.test:443 HTTP/1.1\r\nhost: example.test\r\n\r\n")
        assert status(everything(connection)) == 405


HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n"


@pytest.mark.parametrize("part", [b"", HEAD, HEAD + b'\r\n{"prompt": "'], ids=["nothing", "half a head", "half a body"])
def test_dawdling_clients_are_let_go(serve, part):
    with serve(timeout_client=0.3) as running, connected(running) as connection:
        connection.sendall(part)
        began = time.monotonic()
        answer = everything(connection)
        assert status(answer) == 408 and time.monotonic() - began < 10
        assert running.state.lifecycle.num_open == 0


def test_a_head_by_drips_does_not_hold_a_connection(serve):
    """Each byte comes in time; the whole does not."""
    with serve(timeout_client=0.5) as running, connected(running) as connection:
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for byte in HEAD[:60]:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
        assert status(everything(connection)) == 408
        assert time.monotonic() - began < 10


def test_a_slow_answer_is_no_dawdling_client(serve):
    with serve({"step_seconds": 0.05}, timeout_client=0.3) as running:
        body = {"prompt": "Hello", "max_tokens": 20}
        answer = httpx.post(f"{running.url}/v1/completions", json=body, timeout=30)
        assert answer.status_code == 200 and answer.elapsed.total_seconds() > 0.9


def test_a_client_that_never_reads_is_let_go_and_its_request_ends(serve, until):
    body = {"prompt": "Hello", "max_tokens": 400, "stream": True, "n": 32, "logprobs": 90}
    with serve({"step_seconds": 0.002}, timeout_client=0.5, max_logprobs=-1) as running:
        sent = json.dumps(body).encode()
        with connected(running) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = HEAD.replace(b"1000", b"%d" % len(sent)) + b"\r\n"
            connection.sendall(head + sent)
            until(lambda: running.state.lifecycle.num_open == 1)
            until(lambda: running.state.lifecycle.num_open == 0, 30)


def test_more_connections_than_allowed_answer_503(serve, until):
    with serve(max_connections=3) as running, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(running)) for _ in range(3)]
        until(lambda: len(running.server.server_state.connections) == 3)
        with connected(running) as connection:
            answer = everything(connection)
        assert status(answer) == 503 and b"retry-after: 1" in answer
        held[0].close()
        until(lambda: len(running.server.server_state.connections) == 2)
        assert httpx.get(f"{running.url}/health").status_code == 200


def test_idle_connections_are_closed(serve):
    with serve(timeout_keep_alive=0.3) as running, connected(running) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        began = time.monotonic()
        assert status(everything(connection)) == 200 and 0.2 < time.monotonic() - began < 10


def test_a_half_closed_client_counts_as_gone(serve, until):
    body = b'{"prompt": "Hello", "max_tokens": 400, "stream": true}'
    with serve(SLOW) as running, connected(running) as connection:
        connection.sendall(HEAD.replace(b"1000", b"%d" % len(body)) + b"\r\n" + body)
        until(lambda: running.state.lifecycle.num_open == 1)
        connection.shutdown(socket.SHUT_WR)
        until(lambda: running.state.lifecycle.num_open == 0)
