"""What the offline door needs: the text side and an engine in this process, or several in processes of their own.

Owns: nothing that lives. Loads torch, since the engine may run here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from turret.checkpoint import Checkpoint
from turret.compose.engine import build_engine
from turret.compose.engines import engine_client, launch_engines
from turret.compose.find import find_model
from turret.compose.grammars import grammar_service
from turret.compose.server import generation_defaults
from turret.compose.spec import EngineSpec
from turret.compose.text import open_text
from turret.config import Config
from turret.engine import InprocEngine, OfflineFleet
from turret.errors import ConfigError
from turret.grammars import GrammarService
from turret.text import TextProcessor

__all__ = ["OfflineParts", "build_offline"]


@dataclass(frozen=True, slots=True)
class OfflineParts:
    """Everything `LLM` needs."""

    text: TextProcessor
    engine: InprocEngine | OfflineFleet
    checkpoint: Checkpoint
    max_model_len: int
    vocab_size: int
    generation_defaults: Mapping[str, Any]
    grammars: GrammarService


def build_offline(
    config: Config, user_set: tuple[str, ...], progress: Callable[[str, float], None]
) -> OfflineParts:
    """Find the model and start an engine in this process; raises LoadError, ConfigError, PluginError."""
    found = find_model(config)
    config, checkpoint = found.config, found.checkpoint
    text = open_text(config, checkpoint, found.max_model_len)
    spec = EngineSpec(config=config.engine, checkpoint=checkpoint, user_set=user_set)
    engine = _engine(spec, progress)
    text.limit_context(engine.ready.max_model_len)
    grammars = grammar_service(config.engine, text, checkpoint, lambda: engine.call("worker", "grammars"))
    return OfflineParts(
        text, engine, checkpoint, engine.ready.max_model_len, engine.ready.vocab_size,
        generation_defaults(config, checkpoint), grammars,
    )  # fmt: skip


def _engine(spec: EngineSpec, progress: Callable[[str, float], None]) -> InprocEngine | OfflineFleet:
    """One engine runs in this process; of several each has a process, so that none waits for another's step."""
    parallel = spec.config.parallel
    if parallel.api_server_count > 1:
        raise ConfigError("api_server_count is an option of `turret serve`; here is no server", "api-server-count")
    if parallel.data_parallel_size == 1:
        return InprocEngine(build_engine(spec.to_json(), progress))
    if "log_level" not in spec.user_set:  # a library's processes speak up only when something is wrong
        quiet = dataclasses.replace(spec.config.observability, log_level="warning")
        spec = msgspec.structs.replace(spec, config=dataclasses.replace(spec.config, observability=quiet))
    fleet = OfflineFleet(engine_client(launch_engines(spec)))
    fleet.start(progress)
    return fleet
