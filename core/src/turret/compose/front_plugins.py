"""Plugins of the HTTP front: listeners, parsers of answers, further APIs.

Owns: which of them the options ask for. Knows nothing of what they do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from turret.checkpoint import Checkpoint
from turret.compose.hosts import plugin_host
from turret.compose.parser_choice import add_parser_files, choose_parsers
from turret.config import Config
from turret.contracts import Endpoint
from turret.plugins import Hooks, PluginHost
from turret.plugins.events import ConfigResolved
from turret.server.parts import AnswerParsers

__all__ = ["FrontPlugins", "front_plugins"]

log = logging.getLogger("turret.server")

USUAL_ENDPOINTS = ("messages", "responses")
"""APIs that are served without being asked for, where they are installed: users of vLLM know them as always there."""


@dataclass(frozen=True, slots=True)
class FrontPlugins:
    """What a front loaded; `notes` are lines for the log on what was chosen without being named."""

    hooks: Hooks
    parsers: AnswerParsers
    endpoints: tuple[Endpoint, ...] = ()
    notes: tuple[str, ...] = ()

    def say(self) -> None:
        """Put the notes in the log; where several front ends load the same, one of them says it."""
        for note in self.notes:
            log.info("%s", note)


def front_plugins(
    config: Config, checkpoint: Checkpoint, hooks: Hooks | None, extra: Mapping[str, str | None]
) -> FrontPlugins:
    """Listeners (told of the configuration), parsers and endpoints. Unknown names in the plugin options fail here, at
    once, rather than in the engine's process."""
    host = plugin_host(config.plugins, frozenset({"front"}))
    hooks = host.hooks() if hooks is None else hooks
    add_parser_files(host, config.server.tool_parser_plugin, config.server.reasoning_parser_plugin)
    chosen = choose_parsers(config, host, checkpoint)
    endpoints = tuple(_named(host, "endpoint", name) for name in _endpoint_names(host, config.server.endpoints))
    if hooks.active:
        hooks.notify("config_resolved", ConfigResolved(_shown(config), extra))
    return FrontPlugins(hooks, chosen.parsers, endpoints, chosen.notes)


def _endpoint_names(host: PluginHost, wanted: list[str] | None) -> list[str]:
    if wanted is not None:
        return [name for name in dict.fromkeys(wanted) if name]
    installed = {item.name for item in host.registry.of_kind("endpoint")}
    return [name for name in USUAL_ENDPOINTS if name in installed]


def _named(host: PluginHost, kind: str, name: str) -> Any:
    """The plugin the operator named, loaded; raises PluginError for one that is not there or broken."""
    return host.load(host.select(kind, key=name, explicit=name).require())


def _shown(config: Config) -> dict[str, dict[str, Any]]:
    """The configuration for listeners, without the keys that open the server and the hub."""
    sections: dict[str, dict[str, Any]] = asdict(config)
    sections["server"].pop("api_key", None)
    sections["model"].pop("hf_token", None)
    return sections
