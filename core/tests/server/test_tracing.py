"""Traces of calls, as a collector receives them over HTTP and over gRPC."""

from __future__ import annotations

import concurrent.futures
import http.server
import sys
import threading

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from turret.errors import ConfigError
from turret.server.tracing import check_tracing

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"


class Collector(TraceServiceServicer):
    """Keeps the spans it is sent."""

    def __init__(self):
        self.spans = []
        self.services = set()

    def Export(self, request, context):
        for resource in request.resource_spans:
            self.services |= {a.value.string_value for a in resource.resource.attributes if a.key == "service.name"}
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return ExportTraceServiceResponse()


@pytest.fixture
def over_http(monkeypatch):
    monkeypatch.setenv(PROTOCOL, "http/protobuf")
    collector = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.Export(ExportTraceServiceRequest.FromString(body), None)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", collector
        server.shutdown()


@pytest.fixture
def over_grpc(monkeypatch):
    monkeypatch.setenv(PROTOCOL, "grpc")
    collector = Collector()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}", collector
    server.stop(None)


@pytest.mark.parametrize("transport", ["over_http", "over_grpc"])
def test_a_call_is_a_span_of_its_callers_trace(serve, request, transport):
    endpoint, collector = request.getfixturevalue(transport)
    body = {"prompt": "Hello", "max_tokens": 5, "n": 2, "temperature": 0.5, "top_p": 0.9, "request_id": "mine"}
    with serve(otlp_traces_endpoint=endpoint) as running:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        httpx.post(f"{running.url}/v1/completions", json=body, headers=headers)
        httpx.post(f"{running.url}/v1/completions", json={"prompt": "Hello", "max_tokens": 3, "stream": True})
        httpx.post(f"{running.url}/v1/completions", json={"prompt": "", "max_tokens": 3})
    traced, alone = collector.spans
    assert collector.services == {"turret"}
    assert (traced.trace_id.hex(), traced.parent_span_id.hex()) == (TRACE, PARENT)
    assert not alone.parent_span_id and alone.trace_id != traced.trace_id
    assert traced.name == "llm_request" and traced.kind == Span.SPAN_KIND_SERVER
    assert traced.end_time_unix_nano > traced.start_time_unix_nano
    told = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in traced.attributes}
    assert told["gen_ai.response.model"] == "tiny" and told["gen_ai.request.id"] == "mine"
    assert told["gen_ai.request.temperature"] == 0.5 and told["gen_ai.request.top_p"] == 0.9
    assert told["gen_ai.request.max_tokens"] == 5 and told["gen_ai.request.n"] == 2
    assert told["gen_ai.usage.num_sequences"] == 2
    assert told["gen_ai.usage.prompt_tokens"] == 5 and told["gen_ai.usage.completion_tokens"] == 10
    spent = (traced.end_time_unix_nano - traced.start_time_unix_nano) / 1e9
    assert told["gen_ai.latency.e2e"] == pytest.approx(spent, abs=1e-3)
    phases = [told[f"gen_ai.latency.time_in_model_{phase}"] for phase in ("prefill", "decode", "inference")]
    assert all(0 <= phase <= spent for phase in phases) and phases[2] == pytest.approx(phases[0] + phases[1])
    assert 0 <= told["gen_ai.latency.time_in_queue"] <= told["gen_ai.latency.time_to_first_token"] <= spent


def test_what_was_cut_off_says_so(serve, over_http, until):
    endpoint, collector = over_http
    with serve({"step_seconds": 0.02}, otlp_traces_endpoint=endpoint) as running:
        with httpx.stream("POST", f"{running.url}/v1/completions",
                          json={"prompt": "Hello", "max_tokens": 400, "stream": True}) as stream:  # fmt: skip
            next(stream.iter_text())
        until(lambda: running.state.lifecycle.num_open == 0)
    (span,) = collector.spans
    told = {a.key: a.value for a in span.attributes}
    assert [v.string_value for v in told["gen_ai.response.finish_reasons"].array_value.values] == ["abort"]
    assert 0 < told["gen_ai.usage.completion_tokens"].int_value < 400 and span.status.code == Status.STATUS_CODE_UNSET


def test_a_collector_that_is_away_holds_nothing_up(serve):
    with serve(otlp_traces_endpoint="http://127.0.0.1:9") as running:
        assert httpx.post(f"{running.url}/v1/completions", json={"prompt": "x", "max_tokens": 2}).status_code == 200


def test_missing_packages_are_named_with_the_remedy(monkeypatch):
    monkeypatch.setenv(PROTOCOL, "http/protobuf")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(ConfigError, match=r"pip install 'turret\[otlp\]'"):
        check_tracing("http://127.0.0.1:9")
    monkeypatch.setenv(PROTOCOL, "carrier-pigeon")
    with pytest.raises(ConfigError, match="may be grpc or http/protobuf"):
        check_tracing("http://127.0.0.1:9")
    check_tracing(None)
