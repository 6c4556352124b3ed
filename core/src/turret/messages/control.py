"""Frames between the main process of a server and its front-end processes.

Owns: the tagged unions that travel over the pair of sockets between them. Knows nothing of sockets or HTTP.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turret.messages.frames import EngineReady

__all__ = [
    "Answer", "Answers", "Ask", "AskAll", "Begin", "Boot", "EngineGone", "FrontFailed", "FrontReady", "StopFront",
    "ToFront", "ToMain",
]  # fmt: skip


class Boot(msgspec.Struct, frozen=True, tag="boot"):
    """First frame to a front: `opener` is `package.module:function`, called with `spec` (JSON) to make what it
    serves."""

    opener: str
    spec: str


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """The engines are up: where each listens, and its facts."""

    addresses: list[str]
    engines: list[EngineReady]


class EngineGone(msgspec.Struct, frozen=True, tag="engine_gone"):
    """An engine died."""

    engine: int
    reason: str


class StopFront(msgspec.Struct, frozen=True, tag="stop"):
    """First: drain, then end. Second: end now."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """Somebody asks all fronts: give your `Answer`."""

    call_id: int
    what: str
    argument: Any = None


class Answers(msgspec.Struct, frozen=True, tag="answers"):
    """What all fronts said to an `AskAll`."""

    call_id: int
    values: list[Any]


ToFront = Boot | Begin | EngineGone | StopFront | Ask | Answers


class FrontReady(msgspec.Struct, frozen=True, tag="ready"):
    """The front takes connections."""


class FrontFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The front could not start; `kind` is the name of a class in `turret.errors`."""

    kind: str
    message: str


class AskAll(msgspec.Struct, frozen=True, tag="ask_all"):
    """A front wants to know something of all fronts, itself included."""

    call_id: int
    what: str
    argument: Any = None


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """A front's answer to `Ask`."""

    call_id: int
    value: Any = None


ToMain = FrontReady | FrontFailed | AskAll | Answer
