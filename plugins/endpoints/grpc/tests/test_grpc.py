"""The services through a real channel."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from turret.contracts import ListenerPlace
from turret.errors import ConfigError, RequestError
from turret_endpoint_grpc import engine_pb2 as pb
from turret_endpoint_grpc.plugin import GrpcListener
from turret_endpoint_grpc.translate import completion_body

SLOW = {"step_seconds": 0.02, "token_seconds": 0.0}


def asking(prompt="Hello", **params):
    return pb.GenerateRequest(text=prompt, sampling_params=pb.SamplingParams(**{"ignore_eos": True, **params}))


@pytest.fixture
def stub(tiny):
    with tiny.channel() as channel:
        yield tiny.stub(channel)


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def test_whole_answer(tiny, stub):
    answer = stub.Generate(asking(max_tokens=12))
    expected = tiny.tokens("Hello", 12)
    [choice] = answer.choices
    assert list(choice.token_ids) == expected and choice.text == tiny.text.tokenizer.decode(expected)
    assert choice.finish_reason == "length" and answer.model == "tiny"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 12)


def test_it_says_what_http_says(tiny, stub):
    asked = {"prompt": "Hello", "max_tokens": 30, "ignore_eos": True, "seed": 3, "n": 2, "temperature": 0.7}
    http = httpx.post(f"{tiny.url}/v1/completions", json=asked).json()
    told = stub.Generate(asking(max_tokens=30, seed=3, n=2, temperature=0.7))
    assert [choice.text for choice in told.choices] == [choice["text"] for choice in http["choices"]]


def test_token_ids_and_streams(tiny, stub):
    prompt = tiny.text.encode_prompt("a longer prompt")
    request = pb.GenerateRequest(
        tokenized=pb.TokenizedInput(input_ids=prompt), sampling_params=pb.SamplingParams(max_tokens=20, ignore_eos=True)
    )
    chunks = list(stub.GenerateStream(request))
    assert len(chunks) > 1 and len({chunk.request_id for chunk in chunks}) == 1
    tokens = [token for chunk in chunks for token in chunk.choice.token_ids]
    assert tokens == tiny.tokens(prompt, 20)
    assert [chunk.choice.finish_reason for chunk in chunks] == [""] * (len(chunks) - 1) + ["length"]
    assert chunks[-1].usage.completion_tokens == 20


def test_what_stopped_it(tiny, stub):
    expected = tiny.tokens("Hello", 12)
    text = tiny.text.tokenizer.decode(expected)
    [choice] = stub.Generate(asking(max_tokens=50, stop=[text[4:6]])).choices
    assert choice.finish_reason == "stop" and choice.stop_string == text[4:6]
    assert choice.text == text[: text.find(text[4:6])]
    [choice] = stub.Generate(asking(max_tokens=50, stop_token_ids=[expected[3]])).choices
    assert choice.finish_reason == "stop" and choice.stop_token_id == expected[3]


@pytest.mark.parametrize(
    ("request_", "code", "field"),
    [
        (pb.GenerateRequest(), grpc.StatusCode.INVALID_ARGUMENT, "input"),
        (asking(temperature=-1), grpc.StatusCode.INVALID_ARGUMENT, "temperature"),
        (asking(max_tokens=10**8), grpc.StatusCode.INVALID_ARGUMENT, "max_tokens"),
        (pb.GenerateRequest(text="x", model="nobody"), grpc.StatusCode.NOT_FOUND, "model"),
        (asking(json_schema="{"), grpc.StatusCode.INVALID_ARGUMENT, "json_schema"),
    ],
)
@pytest.mark.parametrize("method", ["Generate", "GenerateStream"])
def test_errors_are_statuses(stub, request_, code, field, method):
    with pytest.raises(grpc.RpcError) as told:
        answer = getattr(stub, method)(request_)
        list(answer if method == "GenerateStream" else ())
    assert told.value.code() is code and told.value.details()
    assert dict(told.value.trailing_metadata())["turret-error-param"] == field


def test_facts(stub):
    model, server = stub.GetModelInfo(pb.GetModelInfoRequest()), stub.GetServerInfo(pb.GetServerInfoRequest())
    assert model.model_path == "/models/tiny" and list(model.served_model_names) == ["tiny"]
    assert model.max_context_length == 4096 and model.eos_token_ids
    assert server.server_type == "turret" and server.is_ready and server.uptime_seconds > 0


def test_reflection_knows_the_services(tiny):
    with tiny.channel() as channel:
        ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        [told] = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    names = {service.name for service in told.list_services_response.service}
    assert {"turret.v1.Engine", "grpc.health.v1.Health"} <= names


def test_cancelling_ends_the_work(serve):
    with serve(SLOW) as running, running.channel() as channel:
        stub = running.stub(channel)
        answer = stub.GenerateStream(asking(max_tokens=4000))
        next(answer)
        active = lambda: stub.GetServerInfo(pb.GetServerInfoRequest()).active_requests  # noqa: E731
        assert active() == 1
        answer.cancel()
        until(lambda: active() == 0)
        with pytest.raises(grpc.RpcError) as late:
            stub.Generate(asking(max_tokens=4000), timeout=0.3)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        until(lambda: active() == 0)


def test_abort_and_drain(serve):
    with serve(SLOW, shutdown_timeout=20.0) as running, running.channel() as channel:
        stub, health = running.stub(channel), health_pb2_grpc.HealthStub(channel)
        request = asking(max_tokens=4000)
        request.request_id = "mine"
        with ThreadPoolExecutor(1) as pool:
            whole = pool.submit(stub.Generate, request)
            until(lambda: stub.Abort(pb.AbortRequest(request_ids=["grpc-mine"])).aborted == 1)
            assert whole.result(10).choices[0].finish_reason == "abort"
            assert stub.Abort(pb.AbortRequest(request_ids=["grpc-mine"])).aborted == 0

            asked, serving_, not_serving = health_pb2.HealthCheckRequest(), 1, 2
            assert health.Check(asked).status == serving_
            under_way = pool.submit(lambda: list(stub.GenerateStream(asking(max_tokens=60))))
            until(lambda: stub.GetServerInfo(pb.GetServerInfoRequest()).active_requests == 1)
            running.stop()
            until(lambda: health.Check(asked).status == not_serving)
            with pytest.raises(grpc.RpcError) as refused:
                stub.Generate(asking())
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert under_way.result(20)[-1].choice.finish_reason == "length"


def test_watching_the_health(serve):
    with serve(SLOW) as running, running.channel() as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="turret.v1.Engine"))
        assert next(watch).status == 1
        stub = running.stub(channel)
        held = threading.Thread(target=lambda: list(stub.GenerateStream(asking(max_tokens=200))), daemon=True)
        held.start()
        until(lambda: stub.GetServerInfo(pb.GetServerInfoRequest()).active_requests == 1)
        running.stop()
        assert next(watch).status == 2
        watch.cancel()
        held.join(20)


def test_keys(serve):
    with serve(api_key=["secret"]) as running, running.channel() as channel:
        stub = running.stub(channel)
        for metadata in ((), (("authorization", "Bearer wrong"),), (("x-api-key", "wrong"),)):
            for call in (
                lambda m: stub.Generate(asking(), metadata=m),
                lambda m: list(stub.GenerateStream(asking(), metadata=m)),
                lambda m: stub.GetModelInfo(pb.GetModelInfoRequest(), metadata=m),
                lambda m: stub.Abort(pb.AbortRequest(), metadata=m),
                lambda m: list(reflected(channel, m)),
            ):
                with pytest.raises(grpc.RpcError) as told:
                    call(metadata)
                assert told.value.code() is grpc.StatusCode.UNAUTHENTICATED
        for metadata in ((("authorization", "Bearer secret"),), (("x-api-key", "secret"),)):
            assert stub.Generate(asking(max_tokens=2), metadata=metadata).choices
            assert list(reflected(channel, metadata))
        assert health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status == 1


def reflected(channel, metadata):
    ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
    return ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), metadata=metadata)


def test_a_port_that_is_taken(tiny):
    class Host:
        place = ListenerPlace()

    with pytest.raises(ConfigError, match=r"endpoint:grpc\.port"):
        asyncio.run(GrpcListener(Host(), f"127.0.0.1:{tiny.port}").start())


def test_every_field_has_a_meaning():
    params = pb.SamplingParams(
        temperature=0.7, top_k=3, stop=["a"], stop_token_ids=[4], logit_bias={3: 1.5}, seed=-1, n=2, bad_words=["b"],
        skip_special_tokens=False, choice=pb.Choices(choices=["x", "y"]),
    )
    body = completion_body(pb.GenerateRequest(text="p", request_id="r", priority=2, sampling_params=params))
    assert body == {
        "prompt": "p", "request_id": "r", "priority": 2, "temperature": 0.7, "top_k": 3, "stop": ["a"],
        "stop_token_ids": [4], "logit_bias": {3: 1.5}, "seed": -1, "n": 2, "bad_words": ["b"],
        "skip_special_tokens": False, "structured_outputs": {"choice": ["x", "y"]},
    }
    for field, value, made in (
        ("json_schema", '{"type": "object"}', {"json": {"type": "object"}}), ("regex", "a+", {"regex": "a+"}),
        ("json_object", True, {"json_object": True}), ("grammar", "root ::= 'a'", {"grammar": "root ::= 'a'"}),
    ):
        request = pb.GenerateRequest(text="p", sampling_params=pb.SamplingParams(**{field: value}))
        assert completion_body(request)["structured_outputs"] == made
    with pytest.raises(RequestError):
        completion_body(pb.GenerateRequest())
