"""The plugin host that a configuration describes.

Owns: the translation of the plugin options into policy, settings and lock. Knows no plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from turret.config import PluginConfig
from turret.contracts import (
    AttentionBackend,
    Endpoint,
    ModelArchitecture,
    OpProvider,
    Platform,
    QuantMethod,
    ReasoningParser,
    SchedulerPolicy,
    StructuredBackend,
    ToolParser,
)
from turret.plugins import HostSettings, Plan, PluginHost, Policy, parse_settings, read_plan

__all__ = ["CONTRACTS", "host_from_plan", "plugin_host"]

CONTRACTS: Mapping[str, type] = {
    "platform": Platform,
    "attention": AttentionBackend,
    "quant": QuantMethod,
    "model": ModelArchitecture,
    "op": OpProvider,
    "tool_parser": ToolParser,
    "reasoning_parser": ReasoningParser,
    "policy": SchedulerPolicy,
    "endpoint": Endpoint,
    "structured": StructuredBackend,
}
"""The Protocol that plugins of each kind must satisfy, for the kinds that have one."""


def plugin_host(config: PluginConfig, roles: frozenset[str]) -> PluginHost:
    """A host over everything installed, under the user's policy; raises ConfigError and PluginError."""
    policy = Policy(
        allow=tuple(config.plugins_allow or ()),
        deny=tuple(config.plugins_deny),
        prefer=tuple(config.plugins_prefer),
        pins=Policy.read_pins(config.plugin_pin),
    )
    lock = read_plan(Path(config.plugins_lock)) if config.plugins_lock else None
    return PluginHost.discover(policy, _settings(roles), given=parse_settings(config.plugin_config), lock=lock)


def host_from_plan(plan: Plan, roles: frozenset[str]) -> PluginHost:
    """A child's host: exactly what the parent froze, or an error that names the mismatch."""
    return PluginHost.from_plan(plan, _settings(roles))


def _settings(roles: frozenset[str]) -> HostSettings:
    return HostSettings(roles=roles, contracts=CONTRACTS)
