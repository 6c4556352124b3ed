"""The wire: frames arrive whole at the right client, nonsense is dropped, the place is private."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from turret.errors import RequestError
from turret.messages import Abort, EngineFailure, Events, FinishReason, Request, Submit, TokenEvent, TokenLogprobs
from turret.sampling import SamplingParams
from turret.transport import ClientSocket, EngineSocket, PrivateEndpoint

LIMIT = 4096
WAIT = 10.0


@pytest.fixture
def endpoint() -> Iterator[PrivateEndpoint]:
    place = PrivateEndpoint()
    yield place
    place.remove()


@pytest.fixture
def engine(endpoint: PrivateEndpoint) -> Iterator[EngineSocket]:
    socket = EngineSocket(endpoint.address, LIMIT)
    yield socket
    socket.close()


@pytest.fixture
def clients(endpoint: PrivateEndpoint, engine: EngineSocket) -> Iterator[tuple[ClientSocket, ClientSocket]]:
    pair = ClientSocket(endpoint.address, LIMIT), ClientSocket(endpoint.address, LIMIT)
    yield pair
    for client in pair:
        client.close()


def receive(socket: EngineSocket) -> tuple[bytes, object]:
    socket.wait(WAIT)
    got = socket.receive()
    assert got is not None, "no frame came"
    return got


def test_frames_keep_their_values_and_find_their_client(
    engine: EngineSocket, clients: tuple[ClientSocket, ClientSocket]
) -> None:
    sampling = SamplingParams(temperature=0.7, top_p=0.9, logit_bias={5: -1.5}, stop_token_ids=[7], prompt_logprobs=2)
    request = Request(request_id="ü", prompt_token_ids=[1, 2**31], sampling=sampling, max_tokens=3, seed=9)
    submit = Submit(requests=[request])
    clients[0].send(submit)
    first, frame = receive(engine)
    assert frame == submit
    clients[1].send(Abort(request_ids=["a", "b"]))
    second, frame = receive(engine)
    assert frame == Abort(request_ids=["a", "b"]) and first != second
    logprobs = [TokenLogprobs(4, -0.5, 1, [4, 5], [-0.5, -9999.0])]
    event = TokenEvent(request_id="ü", token_ids=[4], logprobs=logprobs, finish_reason=FinishReason.STOP)
    events = Events(events=[event])
    failure = EngineFailure(message="why")
    assert engine.send(first, events) and engine.send(second, failure)
    clients[0].wait(WAIT)
    clients[1].wait(WAIT)
    assert clients[0].receive() == events and clients[1].receive() == failure
    assert clients[0].receive() is None and engine.receive() is None


@pytest.mark.parametrize(
    "parts",
    [
        [b""],
        [b"\xc1"],
        [b"not msgpack at all"],
        [b"\x81\xa4type\xa5sumit"],
        [b"\x82\xa4type\xa5abort\xabrequest_ids\x05"],
        [b"\x82\xa4type\xa5abort\xabrequest_ids\x91\xa2\xff\xfe"],
        [b"two", b"parts"],
    ],
)
def test_nonsense_is_dropped_and_logged_and_the_engine_goes_on(
    parts: list[bytes], endpoint: PrivateEndpoint, engine: EngineSocket, caplog: pytest.LogCaptureFixture
) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as rogue:
        rogue.connect(endpoint.address)
        rogue.send_multipart(parts)
        rogue.send(b"\x82\xa4type\xa5abort\xabrequest_ids\x91\xa1x")
        with caplog.at_level(logging.WARNING, "turret.transport"):
            assert receive(engine)[1] == Abort(request_ids=["x"])
        rogue.close(linger=0)
    assert len(caplog.records) == 1 and "dropped" in caplog.text


def test_invalid_sampling_values_do_not_get_in(endpoint: PrivateEndpoint, engine: EngineSocket) -> None:
    good = msgspec.to_builtins(Submit(requests=[Request(
        request_id="r", prompt_token_ids=[1], sampling=SamplingParams(temperature=0.5), max_tokens=1, seed=0)]))
    good["requests"][0]["sampling"]["temperature"] = -4.0
    with zmq.Context() as context, context.socket(zmq.DEALER) as rogue:
        rogue.connect(endpoint.address)
        rogue.send(msgspec.msgpack.encode(good))
        rogue.send(msgspec.msgpack.encode(Abort(request_ids=["x"])))
        assert receive(engine)[1] == Abort(request_ids=["x"])
        rogue.close(linger=0)


def test_a_client_refuses_what_the_engine_would_not_take(clients: tuple[ClientSocket, ClientSocket]) -> None:
    with pytest.raises(RequestError, match=rf"limit is {LIMIT}"):
        clients[0].send(Abort(request_ids=["x" * LIMIT]))


def test_an_oversized_frame_costs_its_sender_the_connection_and_nobody_else(
    endpoint: PrivateEndpoint, engine: EngineSocket, clients: tuple[ClientSocket, ClientSocket]
) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as rogue:
        rogue.connect(endpoint.address)
        rogue.send(bytes(LIMIT + 1))
        clients[0].send(Abort(request_ids=["x"]))
        assert receive(engine)[1] == Abort(request_ids=["x"])
        engine.wait(0.2)
        assert engine.receive() is None
        rogue.close(linger=0)


def test_a_client_that_is_gone_is_told_apart(engine: EngineSocket) -> None:
    assert not engine.send(b"nobody", EngineFailure(message="why"))


def test_a_client_that_left_is_noticed(
    endpoint: PrivateEndpoint, engine: EngineSocket, clients: tuple[ClientSocket, ClientSocket]
) -> None:
    leaving = ClientSocket(endpoint.address)
    leaving.send(Abort(request_ids=["x"]))
    name, _ = receive(engine)
    leaving.close()
    while engine.send(name, Events(events=[])):  # until the ROUTER has seen the connection end
        engine.wait(0.01)
    clients[0].send(Abort(request_ids=["y"]))
    assert receive(engine)[1] == Abort(request_ids=["y"])


def test_the_directory_is_for_this_user_only_and_goes_away(endpoint: PrivateEndpoint, engine: EngineSocket) -> None:
    mode = stat.S_IMODE(endpoint.directory.stat().st_mode)
    assert mode == 0o700 and endpoint.directory.stat().st_uid == os.getuid()
    assert (endpoint.directory / "engine").exists()
    endpoint.remove()
    endpoint.remove()
    assert not endpoint.directory.exists()


def test_a_deep_temporary_directory_does_not_break_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    place = PrivateEndpoint()
    try:
        EngineSocket(place.address).close()
        assert list(deep.iterdir()) == []
    finally:
        place.remove()
