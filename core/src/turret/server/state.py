"""What the routes of one server share.

Owns: the bundle and the checks that every generating route makes. Knows nothing of any single API's shapes.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from turret.config import Config
from turret.errors import EngineDeadError, ModelNotFoundError, RequestError
from turret.messages import GrammarProgram
from turret.sampling import MAX_N, SamplingParams
from turret.server.admission import queue_deadline
from turret.server.expansion import Generation
from turret.server.generation import Generator
from turret.server.lengths import Limits
from turret.server.lifecycle import Lifecycle
from turret.server.metrics import MetricsShape, ServerMetrics
from turret.server.parts import ServerParts
from turret.server.request_ids import choose_request_ids
from turret.server.tracing import TRACE_HEADERS
from turret.server.wire import CallFields, SamplingFields
from turret.text import TextProcessor

__all__ = ["CallContext", "Headed", "ServerState", "build_state"]


_WITHOUT_PRIORITY = MappingProxyType({"fcfs": "first come, first served", "fair": "fair between tenants"})
"""The policies known not to look at a request's priority; others are plugins that may."""
MAX_CHOICES = MAX_N
"""Choices of one call, over all its prompts: a bound on what a single body can set off."""


class Headed(Protocol):
    """A call that came with headers: an HTTP request, or what another protocol has for one."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case names."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """Who calls: the request id to answer with, the tenant to account to, until when it may wait for its turn, the
    trace that it is part of, its priority, and an id that the body named where a header names another."""

    request_id: str
    tenant: str
    arrival_time: float
    queue_deadline: float | None = None
    trace_headers: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    other_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerState:
    """One running server."""

    parts: ServerParts
    config: Config
    lifecycle: Lifecycle
    metrics: ServerMetrics
    generator: Generator
    limits: Limits

    @property
    def model_name(self) -> str:
        """The name that answers carry: the first served name, whatever alias the client used."""
        return self.parts.model_names[0]

    @property
    def text(self) -> TextProcessor:
        """Tokenizer, chat template and detokenizer."""
        return self.parts.text

    def check_open(self) -> None:
        """Checks that need not even a body: the engine lives, the server takes work, the queue has room."""
        if (reason := self.parts.client.dead_reason) is not None:
            raise EngineDeadError(reason)
        self.lifecycle.check()
        self.generator.queue.check()

    def begin(self, request: Headed, body: CallFields) -> CallContext:
        """Checks that need no prompt: those of `check_open` again, since a body takes time to come, and the model."""
        self.check_open()
        self.check_model(body.model)
        priority = _priority(request.headers.get("x-vllm-priority"), body.priority)
        if priority and (order := _WITHOUT_PRIORITY.get(self.config.scheduler.scheduling_policy)):
            raise RequestError(
                f"priority is {priority}, but this server runs {order}; "
                "start it with --scheduling-policy priority",
                "priority",
            )
        request_id, *others = choose_request_ids(request.headers, body.request_id, getattr(request, "scope", {}))
        arrival = time.time()
        timeout = self.config.server.queue_timeout
        deadline = queue_deadline(request.headers.get("x-turret-queue-timeout"), timeout, arrival)
        trace = {name: request.headers[name] for name in TRACE_HEADERS if name in request.headers}
        return CallContext(request_id, self.tenant(request), arrival, deadline, trace, priority, tuple(others))

    def check_model(self, name: str | None) -> None:
        """Raise `ModelNotFoundError` for a name that is not served; none at all means the base model."""
        if name and name not in self.parts.model_names:
            raise ModelNotFoundError(
                f"the model {name!r} does not exist here; this server serves {', '.join(self.parts.model_names)}",
                "model",
            )

    def job(
        self, call: CallContext, prompts: list[list[int]], params: SamplingParams, fields: SamplingFields,
        grammar: GrammarProgram | None = None,
    ) -> Generation:  # fmt: skip
        """A checked generation: parameters against the model, each prompt against the context. `grammar` is what
        `params.structured_outputs` came to."""
        if len(prompts) * params.n > MAX_CHOICES:
            raise RequestError(
                f"{len(prompts)} prompts with n={params.n} are {len(prompts) * params.n} choices, more than the "
                f"{MAX_CHOICES} of one call; send several calls",
                "n",
            )
        params.check_against_model(self.parts.vocab_size, self.config.model.max_logprobs)
        if params.stop_strings and not self.text.has_tokenizer:
            raise RequestError("stop needs a tokenizer, and this server runs without one; use stop_token_ids", "stop")
        if fields.length_penalty not in (None, 1.0) and not fields.use_beam_search:
            raise RequestError("length_penalty ranks the results of use_beam_search; set that too", "length_penalty")
        if grammar is not None and fields.use_beam_search:
            raise RequestError("use_beam_search cannot keep to structured_outputs or response_format; leave one out",
                               "use_beam_search")
        field = "max_completion_tokens" if getattr(fields, "max_completion_tokens", None) else "max_tokens"
        limits = tuple(self.limits.resolve(len(p), params.max_tokens, field) for p in prompts)
        if params.min_tokens > min(limits):
            raise RequestError(
                f"min_tokens is {params.min_tokens}, but at most {min(limits)} tokens can be generated", "min_tokens"
            )
        return Generation(
            request_id=call.request_id,
            prompts=tuple(prompts),
            params=params,
            max_tokens=limits,
            priority=call.priority,
            cache_salt=fields.cache_salt,
            tenant=call.tenant,
            arrival_time=call.arrival_time,
            queue_deadline=call.queue_deadline,
            trace_headers=call.trace_headers,
            length_penalty=(1.0 if fields.length_penalty is None else fields.length_penalty)
            if fields.use_beam_search else None,
            other_ids=call.other_ids,
            grammar=grammar,
            stream_interval=max(self.config.scheduler.stream_interval, fields.stream_interval or 1),
        )

    def tenant(self, request: Headed) -> str:
        """A name for whoever calls that does not reveal the key; empty for nobody in particular.

        Where keys tell clients apart the key decides, so that no client makes itself many by a header; else the header,
        which a gateway sets for the clients behind it.
        """
        headers = request.headers
        several = len(self.config.server.api_key or ()) > 1
        named = None if several else headers.get("x-turret-tenant")
        who = f"tenant {named}" if named else headers.get("authorization")
        return hashlib.sha256(who.encode()).hexdigest()[:16] if who else ""


def _priority(header: str | None, wanted: int | None) -> int:
    """The request's priority: a gateway's header wins over the body."""
    if header is None:
        return wanted or 0
    try:
        return int(header)
    except ValueError:
        raise RequestError(f"X-Vllm-Priority must be an integer, got {header[:40]!r}", "X-Vllm-Priority") from None


def build_state(parts: ServerParts, config: Config) -> ServerState:
    """Wire the shared pieces of a server."""
    lifecycle = Lifecycle()
    engines = parts.client.engines
    # Of several front ends none hears all of an engine's statistics: the main process shows them.
    silent = config.observability.disable_log_stats or parts.peers.several
    shape = MetricsShape(
        parts.model_names[0], parts.max_model_len, len(engines), config.observability.metrics_compat,
        config.observability.kv_cache_metrics,
    )  # fmt: skip
    metrics = ServerMetrics(shape, None if silent else lambda: [engine.stats for engine in engines])
    if not silent:
        parts.client.stats_listener = metrics.saw_stats
        if parts.cache_facts:
            metrics.cache_config(parts.cache_facts)
    generator = Generator(parts, config, lifecycle, metrics)
    parts.peers.answer("metrics", lambda _: metrics.expose().decode())
    parts.peers.answer("load", lambda _: lifecycle.num_open)
    parts.peers.answer("abort", lambda who_and_ids: generator.calls.abort(*who_and_ids))
    return ServerState(parts, config, lifecycle, metrics, generator, Limits.of(parts, config.model))
