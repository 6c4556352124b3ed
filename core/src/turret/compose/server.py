"""What the HTTP front needs: the checkpoint's text side and a client of the engine.

Owns: the order in which a server starts. Loads neither torch nor transformers: the engine's process does, meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turret.checkpoint import Checkpoint, read_json
from turret.compose.engines import engine_client, launch_engines
from turret.compose.find import FoundModel, find_model
from turret.compose.front_plugins import FrontPlugins, front_plugins
from turret.compose.grammars import grammar_service
from turret.compose.spec import EngineSpec
from turret.compose.text import open_text
from turret.config import Config
from turret.engine.ports import Client
from turret.errors import ConfigError
from turret.messages import EngineReady
from turret.plugins import Hooks
from turret.plugins.events import ModelLoaded
from turret.server.parts import ServerParts
from turret.text import TextProcessor

__all__ = [
    "FrontSide", "PendingServer", "begin_server", "cache_facts", "generation_defaults", "open_front_side",
]  # fmt: skip

logger = logging.getLogger("turret.compose")

_TAKEN = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens")
"""The values of a generation config that become defaults of requests."""


@dataclass(frozen=True, slots=True)
class FrontSide:
    """What a front end has of its own, whatever engines it will reach."""

    config: Config
    checkpoint: Checkpoint
    text: TextProcessor
    plugins: FrontPlugins

    async def finish(self, client: Client, progress: Callable[[str, float], None] | None = None) -> ServerParts:
        """Wait for the engines that `client` reaches; raises what stopped one."""
        ready = await client.start(progress)
        self.text.limit_context(ready.max_model_len)
        if self.plugins.hooks.active:
            self.plugins.hooks.notify("model_loaded", _model_loaded(self.checkpoint.name, ready))
        return ServerParts(
            text=self.text,
            client=client,
            model_names=tuple(self.config.model.served_model_name or [self.checkpoint.name]),
            model_root=self.checkpoint.reference,
            max_model_len=ready.max_model_len,
            vocab_size=ready.vocab_size,
            eos_token_ids=self.checkpoint.eos_token_ids,
            generation_defaults=generation_defaults(self.config, self.checkpoint),
            kv_capacity=(ready.num_blocks - 1) * ready.block_size,
            cache_facts=tuple(cache_facts(self.config, engine.ready) for engine in client.engines),
            hooks=self.plugins.hooks,
            parsers=self.plugins.parsers,
            endpoints=self.plugins.endpoints,
            grammars=grammar_service(self.config.engine, self.text, self.checkpoint, _warmer(client)),
        )


def _warmer(client: Client) -> Callable[[], None]:
    """Has the workers load what follows grammars while the first one is compiled; called from any thread."""
    loop = asyncio.get_running_loop()
    kept: set[asyncio.Task[Any]] = set()

    def begin() -> None:
        task = loop.create_task(client.call("worker", "grammars"))
        kept.add(task)
        task.add_done_callback(ended)

    def ended(task: asyncio.Task[Any]) -> None:
        kept.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("the workers were not told to load structured output: %s", error)

    def warm() -> None:
        loop.call_soon_threadsafe(begin)

    return warm


@dataclass(frozen=True, slots=True)
class PendingServer:
    """A server whose engines are loading. `finish` waits for them in the event loop that will serve."""

    front: FrontSide
    client: Client

    async def finish(self, progress: Callable[[str, float], None] | None = None) -> ServerParts:
        """Wait for the engines; raises what stopped one."""
        return await self.front.finish(self.client, progress)


def begin_server(
    config: Config, user_set: tuple[str, ...], hooks: Hooks | None = None, extra: Mapping[str, str | None] | None = None
) -> PendingServer:
    """Find the model, launch its engines, and open the text side while they load.

    `hooks` are listeners that were loaded already because they add options, whose values are `extra`.
    """
    found = find_model(config)
    side = front_plugins(found.config, found.checkpoint, hooks, extra or {})
    side.say()
    spec = EngineSpec(config=found.config.engine, checkpoint=found.checkpoint, user_set=user_set)
    client = engine_client(launch_engines(spec))
    return PendingServer(open_front_side(found, side), client)


def open_front_side(found: FoundModel, plugins: FrontPlugins) -> FrontSide:
    """The front's side of a model that was found; opening its tokenizer takes a while."""
    text = open_text(found.config, found.checkpoint, found.max_model_len)
    return FrontSide(found.config, found.checkpoint, text, plugins)


def _model_loaded(name: str, ready: EngineReady) -> ModelLoaded:
    facts = ready.facts
    return ModelLoaded(name, float(facts.get("load_seconds", 0.0)), int(facts.get("weight_bytes", 0)))


def cache_facts(config: Config, ready: EngineReady) -> Mapping[str, Any]:
    """The cache's settings as they turned out, for the metric that shows them."""
    cache = config.cache
    return {
        "block_size": ready.block_size,
        "num_gpu_blocks": ready.num_blocks,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "prefix_caching_hash_algo": cache.prefix_caching_hash_algo,
        "cache_dtype": ready.facts.get("cache_dtype", cache.kv_cache_dtype),
        "gpu_memory_utilization": ready.facts.get("gpu_memory_utilization", cache.gpu_memory_utilization),
    }


def generation_defaults(config: Config, checkpoint: Checkpoint) -> Mapping[str, Any]:
    """Sampling values that hold where a request names none."""
    source = config.model.generation_config
    stored: Mapping[str, Any] = {}
    if source == "auto":
        stored = checkpoint.generation_config
    elif source not in ("none", "vllm"):
        path = Path(source).expanduser() / "generation_config.json"
        if not path.is_file():
            raise ConfigError(f"--generation-config {source}: there is no {path}", "generation-config")
        stored = read_json(path)
    merged = {**stored, **config.model.override_generation_config}
    return {name: merged[name] for name in _TAKEN if merged.get(name) is not None}
