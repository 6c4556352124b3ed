"""What several front ends and their main process need.

Owns: what a front is told, and the order in which such a server starts. Loads neither torch nor transformers. The main
process finds the model, starts the engines and holds the shared ledger; it needs no tokenizer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from turret.checkpoint import Checkpoint
from turret.compose.engines import engine_client, engine_processes
from turret.compose.find import FoundModel, find_model
from turret.compose.front_plugins import front_plugins
from turret.compose.server import cache_facts, open_front_side
from turret.compose.spec import EngineSpec
from turret.config import Config
from turret.engine import AttachedLink, Client, EngineProcess, ProcessLink
from turret.messages.control import Boot
from turret.plugins import Hooks
from turret.server.front_child import FrontOpening
from turret.server.front_process import FrontProcess
from turret.server.fronts import FrontPlan
from turret.server.merged_metrics import merge_metrics
from turret.server.metrics import MetricsShape, ServerMetrics
from turret.server.parts import ServerParts
from turret.server.peers import Peers
from turret.transport import Ledger, PrivateEndpoint

__all__ = ["FrontSpec", "PendingFronts", "begin_fronts", "open_front"]

_OPENER = "turret.cli.front:open_front_process"
_QUEUE_COLUMNS = 2
_SERIAL_BITS = 40
"""Calls that one front can number before it would meet the numbers of the next."""


class FrontSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What one front is made of. `config` has the model that was found written in; `hook_values` are those of the
    options that plugins add; `place` of `count` is its row in the ledger at `ledger`; `serial` counts launches."""

    config: Config
    checkpoint: Checkpoint
    max_model_len: int
    hook_values: dict[str, str | None]
    name: str
    ledger: str
    place: int
    count: int
    serial: int

    def to_json(self) -> str:
        """The text that crosses to another process."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> FrontSpec:
        """Read it back."""
        return msgspec.json.decode(text, type=cls)


@dataclass(frozen=True, slots=True)
class PendingFronts:
    """A server whose engines are loading. `plan` makes its fronts; `finish` waits for the engines."""

    config: Config
    checkpoint: Checkpoint
    processes: Sequence[EngineProcess]
    client: Client
    plan: FrontPlan
    endpoint: PrivateEndpoint
    hooks: Hooks

    @property
    def model_name(self) -> str:
        """The name that answers carry."""
        return _model_name(self.config, self.checkpoint)

    @property
    def addresses(self) -> list[str]:
        """Where each engine listens."""
        return [process.address for process in self.processes]

    async def finish(self, progress: Callable[[str, float], None]) -> None:
        """Wait for the engines; raises what stopped one."""
        await self.client.start(progress)

    def close(self) -> None:
        """Give the ledger back."""
        self.plan.ledger.close()
        self.endpoint.remove()


def begin_fronts(
    config: Config, user_set: tuple[str, ...], hooks: Hooks | None, extra: Mapping[str, str | None]
) -> PendingFronts:
    """Find the model, launch its engines, and say what fronts are made of."""
    found = find_model(config)
    config, checkpoint = found.config, found.checkpoint
    plugins = front_plugins(config, checkpoint, hooks, extra)
    plugins.say()
    hooks = plugins.hooks
    spec = EngineSpec(config=config.engine, checkpoint=checkpoint, user_set=user_set)
    processes = engine_processes(spec)
    client = engine_client([ProcessLink(process) for process in processes])
    endpoint = PrivateEndpoint()
    count = config.parallel.api_server_count
    path = str(endpoint.directory / "ledger")
    ledger = Ledger(_QUEUE_COLUMNS + len(processes), count, path=path)

    def boot(front: FrontProcess) -> Boot:
        told = FrontSpec(
            config=config, checkpoint=checkpoint, max_model_len=found.max_model_len, hook_values=dict(extra),
            name=front.name, ledger=path, place=front.place, count=count, serial=front.serial,
        )  # fmt: skip
        return Boot(_OPENER, told.to_json())

    own = _EngineMetrics(config, checkpoint, client, found.max_model_len)
    keep = {"metrics": lambda texts: merge_metrics(texts, past=True).decode()}
    plan = FrontPlan(count, boot, own.answer, keep, ledger, config.server.shutdown_timeout)
    return PendingFronts(config, checkpoint, processes, client, plan, endpoint, hooks)


def open_front(spec: FrontSpec, hooks: Hooks | None) -> FrontOpening:
    """In a front's process: the text side now, the rest once the engines are up."""
    found = FoundModel(spec.config, spec.checkpoint, spec.max_model_len)
    side = open_front_side(found, front_plugins(spec.config, spec.checkpoint, hooks, spec.hook_values))

    async def finish(links: Sequence[AttachedLink], peers: Peers) -> ServerParts:
        ledger = Ledger(_QUEUE_COLUMNS + len(links), spec.count, spec.place, spec.ledger)
        client = engine_client(links, [ledger.count(_QUEUE_COLUMNS + index) for index in range(len(links))])
        parts = await side.finish(client)
        return dataclasses.replace(parts, peers=peers, ledger=ledger, first_serial=spec.serial << _SERIAL_BITS)

    return FrontOpening(spec.config, finish, spec.name.encode())


class _EngineMetrics:
    """What the main process adds to the fronts' metrics: the series of the engines, which it alone hears."""

    def __init__(self, config: Config, checkpoint: Checkpoint, client: Client, max_model_len: int) -> None:
        self._config = config
        self._client = client
        self._metrics: ServerMetrics | None = None
        if config.observability.disable_log_stats:
            return
        shape = MetricsShape(
            _model_name(config, checkpoint), max_model_len, config.parallel.data_parallel_size,
            config.observability.metrics_compat, config.observability.kv_cache_metrics,
        )  # fmt: skip
        self._metrics = ServerMetrics(shape, lambda: [engine.stats for engine in client.engines])
        client.stats_listener = self._metrics.saw_stats
        self._told_config = False

    def answer(self, what: str) -> str | None:
        """The text for `metrics`; nothing else is asked of the main process."""
        if what != "metrics" or self._metrics is None:
            return None
        if not self._told_config:
            self._told_config = True
            self._metrics.cache_config([cache_facts(self._config, engine.ready) for engine in self._client.engines])
        return self._metrics.expose().decode()


def _model_name(config: Config, checkpoint: Checkpoint) -> str:
    return (config.model.served_model_name or [checkpoint.name])[0]
