"""Configuration: frozen sections, their validation and their option metadata.

Owns: what can be configured, with its option names, defaults and ranges. Knows nothing of argv, environment or files:
`turret.cli` reads those and hands a mapping to `Config.from_options`; `turret.llm` hands its keyword arguments to the
same door. Every part of turret gets only its section.
"""

from turret.config.front import ObservabilityConfig, ServerConfig, TlsConfig
from turret.config.options import Option, option_table
from turret.config.sections import (
    FIT_CONTEXT,
    CacheConfig,
    Config,
    DeviceConfig,
    EngineConfig,
    LoadConfig,
    ModelConfig,
    ParallelConfig,
    PluginConfig,
    SchedulerConfig,
)
from turret.config.structured import StructuredConfig

__all__ = [
    "FIT_CONTEXT",
    "CacheConfig",
    "Config",
    "DeviceConfig",
    "EngineConfig",
    "LoadConfig",
    "ModelConfig",
    "ObservabilityConfig",
    "Option",
    "ParallelConfig",
    "PluginConfig",
    "SchedulerConfig",
    "ServerConfig",
    "StructuredConfig",
    "TlsConfig",
    "option_table",
]
