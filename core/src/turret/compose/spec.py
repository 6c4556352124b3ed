"""What an engine process and a worker process are told: one JSON text each.

Owns: `EngineSpec`, `WorkerSpec`. Knows nothing of how they are carried out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turret.checkpoint import Checkpoint
from turret.config import EngineConfig
from turret.plugins import Plan

__all__ = ["EngineSpec", "WorkerSpec"]


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's sections of the configuration, the checkpoint that was found, which options the user set by name
    (a platform may only fill in the others), and which of `data_parallel_size` replicas this is."""

    config: EngineConfig
    checkpoint: Checkpoint
    user_set: tuple[str, ...] = ()
    rank: int = 0

    def to_json(self) -> str:
        """The text that crosses to another process."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> EngineSpec:
        """Read it back."""
        return msgspec.json.decode(text, type=cls)

    def options(self) -> dict[str, Any]:
        """The option values the user decided, by field name; `auto` and null leave the decision to turret."""
        sections = msgspec.to_builtins(self.config)
        flat = {name: value for section in sections.values() for name, value in section.items()}
        return {name: flat[name] for name in self.user_set if flat.get(name) not in (None, "auto")}


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine decided, for a worker in a process of its own: no option is open any more, and the plugins are
    exactly those of the plan."""

    engine: EngineSpec
    plan: Plan
    max_model_len: int

    def to_json(self) -> str:
        """The text that crosses to another process."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> WorkerSpec:
        """Read it back."""
        return msgspec.json.decode(text, type=cls)
