"""What the offline door needs: the text side and an engine in this process.

Owns: nothing that lives. Loads torch, since the engine runs here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from turret.checkpoint import Checkpoint
from turret.compose.engine import build_engine
from turret.compose.find import find_model
from turret.compose.server import generation_defaults
from turret.compose.spec import EngineSpec
from turret.compose.text import open_text
from turret.config import Config
from turret.engine import InprocEngine
from turret.text import TextProcessor

__all__ = ["OfflineParts", "build_offline"]


@dataclass(frozen=True, slots=True)
class OfflineParts:
    """Everything `LLM` needs."""

    text: TextProcessor
    engine: InprocEngine
    checkpoint: Checkpoint
    max_model_len: int
    vocab_size: int
    generation_defaults: Mapping[str, Any]


def build_offline(
    config: Config, user_set: tuple[str, ...], progress: Callable[[str, float], None]
) -> OfflineParts:
    """Find the model and start an engine in this process; raises LoadError, ConfigError, PluginError."""
    found = find_model(config)
    config, checkpoint = found.config, found.checkpoint
    text = open_text(config, checkpoint, found.max_model_len)
    spec = EngineSpec(config=config.engine, checkpoint=checkpoint, user_set=user_set)
    core = build_engine(spec.to_json(), progress)
    return OfflineParts(
        text, InprocEngine(core), checkpoint, found.max_model_len, core.ready.vocab_size,
        generation_defaults(config, checkpoint),
    )  # fmt: skip
