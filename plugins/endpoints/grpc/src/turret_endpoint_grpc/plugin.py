"""Endpoint `grpc`: turret.v1.Engine, health and reflection on a socket of their own.

Owns: the socket and its TLS. What is said on it is in `service`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from turret.contracts import EndpointHost, EndpointRoute, ListenerHost, ListenerPlace
from turret.errors import ConfigError
from turret_endpoint_grpc import engine_pb2_grpc
from turret_endpoint_grpc.service import SERVICE, EngineService, HealthService, ReflectionGuard

__all__ = ["GrpcEndpoint", "GrpcListener"]

DEFAULT_PORT = 50051
MAX_MESSAGE = 64 << 20
_LAST_WORDS_SECONDS = 5.0


class GrpcEndpoint:
    """Contract `endpoint`, 1.1."""

    api = "1.1"
    id_prefix = "grpc-"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._port: int = options.get("port", DEFAULT_PORT)
        self._host: str | None = options.get("host")

    def routes(self, host: EndpointHost) -> Sequence[EndpointRoute]:
        """None: it listens for itself."""
        return ()

    def listener(self, host: ListenerHost) -> GrpcListener:
        """Its listener."""
        return GrpcListener(host, _address(self._host or host.place.host or "0.0.0.0", self._port))


class GrpcListener:
    """See `turret.contracts.EndpointListener`. `port` is the bound one once it was started."""

    def __init__(self, host: ListenerHost, address: str) -> None:
        self.port = 0
        self._host = host
        self._address = address
        self._server: Any = None

    async def start(self) -> str:
        """Listen."""
        options = [
            ("grpc.so_reuseport", int(self._host.place.shared)), ("grpc.max_receive_message_length", MAX_MESSAGE),
        ]  # fmt: skip
        server = grpc.aio.server(interceptors=[ReflectionGuard(self._host)], options=options)
        add_engine: Any = engine_pb2_grpc.add_EngineServicer_to_server
        add_engine(EngineService(self._host), server)
        health_pb2_grpc.add_HealthServicer_to_server(HealthService(self._host), server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        credentials = _credentials(self._host.place)
        try:
            if credentials is None:
                self.port = server.add_insecure_port(self._address)
            else:
                self.port = server.add_secure_port(self._address, credentials)
        except RuntimeError as error:
            raise ConfigError(
                f"endpoint grpc cannot listen on {self._address}: it is taken, or no address of this machine; choose "
                "another with --plugin-config endpoint:grpc.port=NUMBER", "plugin-config",
            ) from error  # fmt: skip
        await server.start()
        self._server = server
        host = self._address.rpartition(":")[0]
        return f"gRPC listens on {host}:{self.port}{'' if credentials is None else ' (TLS)'}"

    async def stop(self) -> None:
        """No new calls; those that still run get a moment."""
        if self._server is not None:
            await self._server.stop(_LAST_WORDS_SECONDS)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _credentials(place: ListenerPlace) -> Any:
    """Those of the HTTP front's TLS; None without."""
    if place.ssl_certfile is None:
        return None
    chain = Path(place.ssl_certfile).read_bytes()
    key = chain if place.ssl_keyfile is None else Path(place.ssl_keyfile).read_bytes()
    trusted = None if place.ssl_ca_certs is None else Path(place.ssl_ca_certs).read_bytes()
    return grpc.ssl_server_credentials(((key, chain),), trusted, place.client_certificates)
