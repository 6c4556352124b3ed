"""Plugins of the HTTP front: listeners, parsers of answers, further APIs.

Owns: which of them the options ask for. Knows nothing of what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from turret.compose.hosts import plugin_host
from turret.config import Config
from turret.contracts import Endpoint
from turret.plugins import Hooks, PluginHost
from turret.plugins.events import ConfigResolved
from turret.server.parts import AnswerParsers

__all__ = ["FrontPlugins", "front_plugins"]

USUAL_ENDPOINTS = ("messages", "responses")
"""APIs that are served without being asked for, where they are installed: users of vLLM know them as always there."""


@dataclass(frozen=True, slots=True)
class FrontPlugins:
    """What a front loaded."""

    hooks: Hooks
    parsers: AnswerParsers
    endpoints: tuple[Endpoint, ...] = ()


def front_plugins(config: Config, hooks: Hooks | None, extra: Mapping[str, str | None]) -> FrontPlugins:
    """Listeners (told of the configuration), parsers and endpoints. Unknown names in the plugin options fail here, at
    once, rather than in the engine's process."""
    host = plugin_host(config.plugins, frozenset({"front"}))
    hooks = host.hooks() if hooks is None else hooks
    server = config.server
    parsers = AnswerParsers(
        _named(host, "reasoning_parser", server.reasoning_parser), _named(host, "tool_parser", server.tool_call_parser)
    )
    endpoints = tuple(_named(host, "endpoint", name) for name in _endpoint_names(host, server.endpoints))
    if hooks.active:
        hooks.notify("config_resolved", ConfigResolved(_shown(config), extra))
    return FrontPlugins(hooks, parsers, endpoints)


def _endpoint_names(host: PluginHost, wanted: list[str] | None) -> list[str]:
    if wanted is not None:
        return [name for name in dict.fromkeys(wanted) if name]
    installed = {item.name for item in host.registry.of_kind("endpoint")}
    return [name for name in USUAL_ENDPOINTS if name in installed]


def _named(host: PluginHost, kind: str, name: str | None) -> Any:
    """The plugin the operator named, loaded; raises PluginError for one that is not there or broken."""
    return None if name is None else host.load(host.select(kind, key=name, explicit=name).require())


def _shown(config: Config) -> dict[str, dict[str, Any]]:
    """The configuration for listeners, without the keys that open the server and the hub."""
    sections: dict[str, dict[str, Any]] = asdict(config)
    sections["server"].pop("api_key", None)
    sections["model"].pop("hf_token", None)
    return sections
