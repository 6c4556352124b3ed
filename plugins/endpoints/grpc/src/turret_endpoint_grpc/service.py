"""The services: turret.v1.Engine on a listener's host, and grpc.health.v1.Health.

Owns: one method a call, statuses of errors, who may call. Knows nothing of sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from turret.contracts import EndpointCall, EndpointFault, ListenerHost
from turret.errors import TurretError
from turret_endpoint_grpc import engine_pb2 as pb
from turret_endpoint_grpc import engine_pb2_grpc
from turret_endpoint_grpc.translate import add_part, completion_body, model_info, server_info, usage_of

__all__ = ["SERVICE", "EngineService", "HealthService", "ReflectionGuard"]

SERVICE = pb.DESCRIPTOR.services_by_name["Engine"].full_name
Context: TypeAlias = "grpc.aio.ServicerContext"

STATUSES: Mapping[int, grpc.StatusCode] = MappingProxyType({
    400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED, 404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED, 429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED, 503: grpc.StatusCode.UNAVAILABLE,
})  # fmt: skip
_WATCH_SECONDS = 1.0
"""How often somebody who watches the health is told, at most."""


def _headers_of(metadata: Any) -> dict[str, str]:
    """Metadata as headers; binary entries are nobody's here."""
    return {key.lower(): value for key, value in metadata or () if isinstance(value, str)}


async def _abort(context: Context, fault: EndpointFault) -> None:
    trailing = [("turret-error-type", fault.type)]
    if fault.param is not None and fault.param.isascii() and fault.param.isprintable():
        trailing.append(("turret-error-param", fault.param))
    await context.abort(STATUSES.get(fault.status, grpc.StatusCode.INTERNAL), fault.message, tuple(trailing))


class EngineService(engine_pb2_grpc.EngineServicer):
    """turret.v1.Engine."""

    def __init__(self, host: ListenerHost) -> None:
        self._host = host

    @asynccontextmanager
    async def _called(self, context: Context) -> AsyncIterator[EndpointCall]:
        """A call that may be; its errors leave as statuses."""
        try:
            yield self._host.call(_headers_of(context.invocation_metadata()))
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            await _abort(context, self._host.fault(error))

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        """A whole answer."""
        made = pb.GenerateResponse()
        async with self._called(context) as call:
            answer = await self._host.complete(call, completion_body(request))
            choices: dict[int, pb.Choice] = {}
            async with aclosing(answer.parts()) as parts:
                async for part in parts:
                    add_part(choices.setdefault(part.index, pb.Choice()), part)
            made.request_id, made.model = answer.id, answer.model
            made.choices.extend(choices[index] for index in sorted(choices))
            made.usage.CopyFrom(usage_of(answer.usage()))
        return made

    async def GenerateStream(
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncGenerator[pb.GenerateChunk, None]:
        """An answer as it is made."""
        async with self._called(context) as call:
            answer = await self._host.complete(call, completion_body(request))
            async with aclosing(answer.parts()) as parts:
                async for part in parts:
                    chunk = pb.GenerateChunk(
                        request_id=answer.id, model=answer.model, usage=usage_of(answer.usage())
                    )
                    add_part(chunk.choice, part)
                    yield chunk

    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortResponse:
        """End open calls of the caller."""
        ended = 0
        async with self._called(context) as call:
            ended = await self._host.abort(call, list(request.request_ids))
        return pb.AbortResponse(aborted=ended)

    async def GetModelInfo(self, _: pb.GetModelInfoRequest, context: Context) -> pb.GetModelInfoResponse:
        """What the model is."""
        async with self._called(context):
            return model_info(self._host.facts())

    async def GetServerInfo(
        self, _: pb.GetServerInfoRequest, context: Context
    ) -> pb.GetServerInfoResponse:
        """What the server is."""
        async with self._called(context):
            return server_info(self._host.facts())


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # grpcio has no types
    """grpc.health.v1.Health: serving while every engine lives and the server takes work. Needs no key, as /health."""

    def __init__(self, host: ListenerHost) -> None:
        self._host = host

    async def Check(self, request: Any, context: Context) -> Any:
        """As of now."""
        if request.service not in ("", SERVICE):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service[:80]!r} here")
        return health_pb2.HealthCheckResponse(status=self._status(request.service))

    async def Watch(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        """At once, and whenever it changes."""
        told = None
        while True:
            status = self._status(request.service)
            if status != told:
                told = status
                yield health_pb2.HealthCheckResponse(status=status)
            await asyncio.sleep(_WATCH_SECONDS)

    def _status(self, service: str) -> Any:
        kinds = health_pb2.HealthCheckResponse
        if service not in ("", SERVICE):
            return kinds.SERVICE_UNKNOWN
        return kinds.SERVING if self._host.facts().trouble is None else kinds.NOT_SERVING


class ReflectionGuard(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpcio has no types
    """Reflection asks for the key too: it is the document of the API, which the HTTP routes guard likewise."""

    def __init__(self, host: ListenerHost) -> None:
        self._host = host

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Pass on what may pass."""
        if not details.method.startswith("/grpc.reflection."):
            return await continuation(details)
        try:
            self._host.call(_headers_of(details.invocation_metadata))
        except TurretError as error:
            fault = self._host.fault(error)

            async def deny(_: Any, context: Context) -> None:
                await _abort(context, fault)

            return grpc.stream_stream_rpc_method_handler(deny)
        return await continuation(details)
