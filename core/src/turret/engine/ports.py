"""What the engine asks of its neighbours, as Protocols.

Owns: `Door` (how frames come in and go out), `Link` and `Receiver` (how a client reaches an engine), `Client` (what a
front end calls, be it one engine or several). Knows no
implementation: a test or another transport may bring its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from turret.messages import ClientFrame, EngineFrame, EngineReady, EngineStats, Request

if TYPE_CHECKING:
    from turret.engine.client import EngineClient
    from turret.engine.stream import EngineStream

__all__ = ["Client", "Door", "Link", "Progress", "Receiver"]

Progress = Callable[[str, float], None]
"""`progress(stage, fraction)`: what is being loaded, and how far it is, in [0, 1]."""


class Door(Protocol):
    """Where client frames come in and engine frames go out. `client` is an opaque name."""

    def watch(self, descriptor: int) -> None:
        """Let `wait` return as well when this descriptor is readable."""

    def wait(self, timeout: float | None = None) -> bool:
        """Block until a frame is there or `timeout` seconds passed; True when it was the watched descriptor."""

    def receive(self) -> tuple[bytes, ClientFrame] | None:
        """The next frame, or None at once."""

    def send(self, client: bytes, frame: EngineFrame) -> bool:
        """False when that client is gone."""


class Receiver(Protocol):
    """What a link calls, always in the client's event loop."""

    def on_frame(self, frame: EngineFrame) -> None:
        """A frame came from the engine."""

    def on_dead(self, reason: str) -> None:
        """The engine is gone; nothing comes after this."""


class Link(Protocol):
    """A way from a client in an event loop to an engine."""

    async def start(self, receiver: Receiver, progress: Progress | None) -> EngineReady:
        """Bring the engine up (or wait until it is); raises what the engine's start raised."""

    def send(self, frame: ClientFrame) -> None:
        """Queue a frame; never blocks."""

    async def stop(self, timeout: float) -> None:
        """End the engine, by force after `timeout` seconds; safe to repeat."""


class Client(Protocol):
    """What a front end calls: `EngineClient` for one engine, `EngineFleet` for several. Their pages say more."""

    stats_listener: Callable[[int, EngineStats], None] | None

    @property
    def engines(self) -> Sequence[EngineClient]:
        """The client of each engine."""

    @property
    def ready(self) -> EngineReady:
        """Facts; `EngineError` before the engine is up."""

    @property
    def stats(self) -> EngineStats:
        """The latest that was told."""

    @property
    def dead_reason(self) -> str | None:
        """Why nothing can be served; None while something can."""

    @property
    def fault(self) -> str | None:
        """What an operator must know: an engine that is gone; None while all is well."""

    @property
    def num_open(self) -> int:
        """Requests without a last event."""

    async def start(self, progress: Progress | None = None) -> EngineReady:
        """Wait until all is up."""

    def submit(self, requests: Request | Sequence[Request]) -> EngineStream:
        """Hand over requests that share a stream."""

    async def abort(self, request_ids: Sequence[str]) -> None:
        """Drop requests now."""

    async def call(self, method: str, *args: Any) -> Any:
        """Call an engine method."""

    def deaths(self) -> AsyncIterator[str]:
        """One sentence for each engine that is gone, as it happens."""

    async def shutdown(self, timeout: float = 0.0) -> None:
        """End the engine."""
