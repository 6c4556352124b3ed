"""What hooks are told: one frozen value an event.

Owns the events' fields. Minor versions of the hook API may add optional fields, never change or remove one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "CliOption",
    "ConfigResolved",
    "MetricsSnapshot",
    "ModelLoaded",
    "RequestFinished",
    "RequestFirstToken",
    "RequestReceived",
    "Shutdown",
]


@dataclass(frozen=True, slots=True)
class CliOption:
    """An option that a hook adds to `turret serve`: `--name VALUE`, a string that `ConfigResolved.extra` carries."""

    name: str
    help: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigResolved:
    """The configuration is settled. `config` maps section to option to value; `extra` holds the hooks' own options."""

    config: Mapping[str, Mapping[str, Any]]
    extra: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """Weights are in place: `weight_bytes` of them, after `seconds`."""

    model: str
    seconds: float
    weight_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request was accepted. `time` is time.time()."""

    request_id: str
    prompt_tokens: int
    time: float


@dataclass(frozen=True, slots=True)
class RequestFirstToken:
    """`seconds` since the request was received."""

    request_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """`reason` is the finish reason that clients see (`stop`, `length`, `abort`, `error`); `seconds` since received."""

    request_id: str
    reason: str
    prompt_tokens: int
    output_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """Current values by metric name, taken at most once a second."""

    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The process ends; `reason` is for people."""

    reason: str = ""
