"""Contract `platform`: a kind of device and everything core must know to run on it.

Owns: the Protocol and the values it exchanges. Knows no device. Version 1.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from turret.contracts.ops import OpProvider

__all__ = ["ConfigPatch", "ConfigView", "DeviceInfo", "MemoryInfo", "Platform", "WorkerEnv"]


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device found by a probe. `features` are names like `avx512_bf16`; `total_memory` is in bytes."""

    index: int
    name: str
    total_memory: int
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Memory of a device in bytes. `used_here` is what this process holds (weights included)."""

    total: int
    free: int
    used_here: int


@dataclass(frozen=True, slots=True)
class ConfigView:
    """What a platform may look at before it proposes changes: option values by field name, and the model's config."""

    options: Mapping[str, Any]
    model_config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConfigPatch:
    """Values a platform wants for options the user left unset, by field name (`block_size`, `max_num_seqs`,
    `max_num_batched_tokens`, `dtype`, ...). Core applies them and logs who changed what; a value for an option the user
    set is an error of the plugin."""

    values: Mapping[str, Any] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerEnv:
    """What a worker tells the platform when it starts on a device."""

    device_index: int
    rank: int
    world_size: int
    threads: int | None


@runtime_checkable
class Platform(Protocol):
    """A kind of device.

    `name` is what `--device` says. `probe` must not import torch and must return within seconds; an empty list means
    the hardware is not there. A probe that raises means hardware is there but unusable: fatal, never a fallback.
    """

    api: str
    name: str

    def probe(self) -> Sequence[DeviceInfo]:
        """Devices present, without importing torch."""

    def preferences(self, kind: str) -> Sequence[str]:
        """Plugin names of `kind` (`attention`, ...) in the order this platform prefers them."""

    def patch_config(self, view: ConfigView) -> ConfigPatch:
        """Defaults this platform wants."""

    def torch_device(self, index: int) -> str:
        """The torch device string, such as `cpu` or `cuda:0`."""

    def memory(self, index: int) -> MemoryInfo:
        """Memory now."""

    def start_worker(self, env: WorkerEnv) -> None:
        """Called once in a worker before torch work: threads, affinity, environment."""

    def ops(self) -> OpProvider | None:
        """Faster ops than the reference, or None. May import torch."""

    def synchronize(self, index: int) -> None:
        """Wait until all submitted work of the device is done."""

    def seed(self, value: int) -> None:
        """Seed every generator of the device."""
