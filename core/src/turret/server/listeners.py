"""Endpoint plugins that listen on sockets of their own, on the handlers of the HTTP routes.

Owns: what such a plugin is given, and that its listener starts and ends with the server. Knows nothing of any API.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import msgspec

from turret.config import Config
from turret.contracts import (
    ChatFinish,
    ChatUsage,
    CompletionAnswer,
    CompletionPart,
    Endpoint,
    EndpointCall,
    EndpointFault,
    EndpointListener,
    ListenerPlace,
    ServerFacts,
)
from turret.errors import RequestError, TurretError, UnauthorizedError
from turret.server.auth import KeyRing
from turret.server.completion_calls import BegunCompletion, begin_completion
from turret.server.endpoints import ChatHost
from turret.server.faults import fault_of, refusal_of
from turret.server.open_calls import id_prefix
from turret.server.state import ServerState
from turret.server.wire import CompletionRequest

__all__ = ["Listeners"]

log = logging.getLogger("turret.server")


class _Completion:
    """See `CompletionAnswer`."""

    def __init__(self, state: ServerState, begun: BegunCompletion, prefix: str) -> None:
        self.id = prefix + begun.run.job.request_id
        self.model = state.model_name
        self._run = begun.run

    async def parts(self) -> AsyncGenerator[CompletionPart, None]:
        """As the engine makes them."""
        async with aclosing(self._run.deltas()) as deltas:
            async for delta in deltas:
                finish = None if delta.finish_reason is None else ChatFinish(delta.finish_reason, delta.stop_reason)
                yield CompletionPart(
                    delta.index, delta.text, delta.token_ids, delta.logprobs, delta.prompt_logprobs, finish
                )

    def usage(self) -> ChatUsage:
        """Counts so far."""
        return ChatUsage(self._run.job.num_prompt_tokens, self._run.num_cached_tokens, self._run.num_output_tokens, 0)


class _Host(ChatHost):
    """See `turret.contracts.ListenerHost`."""

    def __init__(self, state: ServerState, prefix: str) -> None:
        super().__init__(state, prefix)
        self.place = _place(state.config, state.parts.peers.several)
        self._keys = KeyRing(state.config.server.api_key or ())
        self._started = time.monotonic()

    def call(self, headers: Mapping[str, str]) -> EndpointCall:
        """A call, if it may be."""
        if not self._keys.opens(headers):
            raise UnauthorizedError("this server asks for an API key: send it as `authorization: Bearer KEY`")
        call = EndpointCall(headers=headers)
        return replace(call, tenant=self._state.tenant(call))

    async def complete(self, call: EndpointCall, body: Mapping[str, Any]) -> CompletionAnswer:
        """The answer to a body of completions."""
        try:
            fields = msgspec.convert(body, CompletionRequest)
        except msgspec.ValidationError as error:
            raise RequestError(f"what this request comes to is no completion: {error}") from error
        if fields.echo:
            raise RequestError("echo is not available here: an answer holds what was generated", "echo")
        context = self._state.begin(call, fields)
        return _Completion(self._state, await begin_completion(self._state, context, fields), self._prefix)

    async def abort(self, call: EndpointCall, request_ids: Sequence[str]) -> int:
        """End open calls of the caller."""
        told = await self._state.parts.peers.ask("abort", [call.tenant, list(request_ids)])
        return sum(ended or 0 for ended in told)

    def fault(self, error: Exception) -> EndpointFault:
        """An exception as its caller may read it."""
        if not isinstance(error, TurretError) or self._state.config.observability.log_error_stack:
            log.error("a call of a further API ended with an error", exc_info=error)
        if (reason := refusal_of(error, self._state.lifecycle.draining)) is not None:
            self._state.metrics.refused(reason)
        fault = fault_of(error)
        return EndpointFault(fault.status, fault.type, fault.message, fault.param)

    def facts(self) -> ServerFacts:
        """As of now."""
        state, parts = self._state, self._state.parts
        trouble = parts.client.fault or ("the server is shutting down" if state.lifecycle.draining else None)
        return ServerFacts(
            version("turret"), parts.model_names, parts.model_root, parts.max_model_len, parts.vocab_size,
            parts.text.eos_token_ids, state.lifecycle.num_open, time.monotonic() - self._started, trouble,
        )  # fmt: skip


def _place(config: Config, shared: bool) -> ListenerPlace:
    tls = config.tls
    return ListenerPlace(
        config.server.host, shared, tls.ssl_certfile, tls.ssl_keyfile, tls.ssl_ca_certs, tls.ssl_cert_reqs == "2"
    )


class Listeners:
    """The listeners of one server; `start`, then `stop`."""

    def __init__(self, state: ServerState, endpoints: Sequence[Endpoint]) -> None:
        self._made: list[EndpointListener] = []
        for endpoint in endpoints:
            # Not isinstance: plugins are behind a guard, of which that sees too little.
            make = getattr(endpoint, "listener", None)
            if make is not None:
                self._made.append(make(_Host(state, id_prefix(endpoint))))
        self._started: list[EndpointListener] = []

    async def start(self) -> None:
        """All of them; raises what stopped one."""
        for listener in self._made:
            log.info("%s", await listener.start())
            self._started.append(listener)

    async def stop(self) -> None:
        """Those that were started; one that fails at it does not keep the others."""
        while self._started:
            try:
                await self._started.pop().stop()
            except Exception:
                log.exception("a further API could not be stopped")
