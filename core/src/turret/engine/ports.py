"""What the engine asks of its neighbours, as Protocols.

Owns: `Door` (how frames come in and go out), `Link` and `Receiver` (how a client reaches an engine). Knows no
implementation: a test or another transport may bring its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from turret.messages import ClientFrame, EngineFrame, EngineReady

__all__ = ["Door", "Link", "Progress", "Receiver"]

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
