"""OpenTelemetry traces: one span per call, with the attributes that dashboards for vLLM read.

Owns: the exporter, and what a span says. Knows nothing of HTTP or engines: `CallTimer` reports calls as they end. The
OpenTelemetry packages are an extra; they are imported when an endpoint is set, and not before.

Attribute names: OpenTelemetry's semantic conventions for generative AI, and vLLM's additions to them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turret.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["TRACE_HEADERS", "CallSpan", "CallTracer", "check_tracing", "open_tracer"]

TRACE_HEADERS = ("traceparent", "tracestate")
"""The headers by which a caller's trace goes on here (W3C Trace Context)."""
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_NAMES = {
    "request_id": "gen_ai.request.id",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "n": "gen_ai.request.n",
    "num_sequences": "gen_ai.usage.num_sequences",
    "prompt_tokens": "gen_ai.usage.prompt_tokens",
    "completion_tokens": "gen_ai.usage.completion_tokens",
    "time_in_queue": "gen_ai.latency.time_in_queue",
    "time_to_first_token": "gen_ai.latency.time_to_first_token",
    "time_in_model_prefill": "gen_ai.latency.time_in_model_prefill",
    "time_in_model_decode": "gen_ai.latency.time_in_model_decode",
    "time_in_model_inference": "gen_ai.latency.time_in_model_inference",
}


@dataclass(frozen=True, slots=True)
class CallSpan:
    """One call that ended. Times are seconds of `time.time()`; `facts` go by the keys of `_NAMES`, None = unknown."""

    began: float
    ended: float
    reason: str
    facts: Mapping[str, float | int | str | None]
    headers: Mapping[str, str] = field(default_factory=dict)


class CallTracer:
    """Turns calls into spans and sends them in the background."""

    def __init__(self, provider: TracerProvider, model_name: str) -> None:
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("turret")
        self._propagator = TraceContextTextMapPropagator()
        self._server, self._error = SpanKind.SERVER, StatusCode.ERROR
        self._model_name = model_name

    def record(self, call: CallSpan) -> None:
        """A span for `call`, child of its caller's where the headers name one."""
        span = self._tracer.start_span(
            "llm_request",
            context=self._propagator.extract(dict(call.headers)),
            kind=self._server,
            start_time=_nanoseconds(call.began),
        )
        attributes: dict[str, Any] = {_NAMES[key]: value for key, value in call.facts.items() if value is not None}
        attributes["gen_ai.response.model"] = self._model_name
        attributes["gen_ai.response.finish_reasons"] = [call.reason]
        attributes["gen_ai.latency.e2e"] = call.ended - call.began
        span.set_attributes(attributes)
        if call.reason == "error":
            span.set_status(self._error)
        span.end(_nanoseconds(call.ended))

    def close(self) -> None:
        """Send what is left; takes as long as the collector does, so it is no call for an event loop."""
        self._provider.shutdown()


def check_tracing(endpoint: str | None) -> None:
    """Raise `ConfigError` when traces are asked for and cannot be made."""
    if endpoint is not None:
        _exporter(endpoint).shutdown()


def open_tracer(endpoint: str | None, model_name: str) -> CallTracer | None:
    """A tracer that sends to `endpoint`; None without one. Raises `ConfigError` where the packages are missing."""
    if endpoint is None:
        return None
    exporter = _exporter(endpoint)
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME", "turret")}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return CallTracer(provider, model_name)


def _exporter(endpoint: str) -> SpanExporter:
    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), "grpc")
    try:
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter(endpoint=endpoint)
        if protocol == "http/protobuf":
            from opentelemetry.exporter.otlp.proto.http import trace_exporter

            return trace_exporter.OTLPSpanExporter(endpoint=endpoint)
    except ImportError as error:
        raise ConfigError(
            f"--otlp-traces-endpoint needs the OpenTelemetry SDK with its OTLP exporters ({error.name} is missing): "
            "pip install 'turret[otlp]'",
            "otlp-traces-endpoint",
        ) from error
    raise ConfigError(f"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is {protocol!r}; it may be grpc or http/protobuf",
                      "otlp-traces-endpoint")  # fmt: skip


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
