"""Platform `fake`: the contract, answered from options.

Owns: `FakePlatform`. Knows no hardware; tensors live on torch's CPU device.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turret.contracts import (
    ConfigPatch,
    ConfigView,
    DeviceInfo,
    MemoryInfo,
    OpProvider,
    Worker,
    WorkerEnv,
    WorkerOrder,
)
from turret.errors import ConfigError
from turret_platform_fake.options import FakeOptions

if TYPE_CHECKING:
    from turret_platform_fake.faults import FaultyOps

__all__ = ["FakePlatform"]

logger = logging.getLogger(__name__)


class FakePlatform:
    """A pretend device (contract `platform`, 1.0)."""

    api = "1.0"
    name = "fake"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = FakeOptions.of(options or {})
        self._started = False
        self._rss_at_start = 0

    def _reached(self, method: str) -> None:
        if method in self._options.fail and (self._started or self._options.faulty_device is None):
            raise RuntimeError(f"fake device: {method} was told to fail")

    def probe(self) -> Sequence[DeviceInfo]:
        """As many devices as the options say, after as long as they say."""
        time.sleep(self._options.probe_seconds)
        self._reached("probe")
        return [
            DeviceInfo(index=i, name=f"Fake device {i}", total_memory=self._options.memory_of(i))
            for i in range(self._options.devices)
        ]

    def preferences(self, kind: str) -> Sequence[str]:
        """The readable reference first."""
        self._reached("preferences")
        return {"attention": ("torch",)}.get(kind, ())

    def patch_config(self, view: ConfigView) -> ConfigPatch:
        """Small steps: this device is for tests. A script takes any prompt at once."""
        self._reached("patch_config")
        small = {"block_size": 16, "max_num_seqs": 16, "max_num_batched_tokens": 512, "dtype": "float32"}
        if self._options.script is not None:
            small |= {"max_num_seqs": 64, "max_num_batched_tokens": 1 << 16}
        wanted = {name: value for name, value in small.items() if name not in view.options}
        return ConfigPatch(values=wanted, reasons=dict.fromkeys(wanted, "a device for tests"))

    def torch_device(self, index: int) -> str:
        """Always torch's CPU."""
        self._reached("torch_device")
        return "cpu"

    def memory(self, index: int) -> MemoryInfo:
        """The pretended total, less what this process has grown by since the worker started."""
        self._reached("memory")
        used = max(0, _rss_bytes() - self._rss_at_start)
        total = self._options.memory_of(index)
        return MemoryInfo(total, max(0, total - used), used)

    def start_worker(self, env: WorkerEnv) -> None:
        """Remember the memory of the process, compute on one thread unless told otherwise; refuse devices that do not
        exist. From here on the faults are those of this device."""
        self._options, self._started = self._options.on_device(env.device_index), True
        self._reached("start_worker")
        if env.device_index >= self._options.devices:
            raise RuntimeError(f"fake device {env.device_index} does not exist; there are {self._options.devices}")
        # Imported here: probing must not load torch.
        import torch

        torch.set_num_threads(env.threads or 1)
        logger.info("computing on fake device %d, threads: %d", env.device_index, torch.get_num_threads())
        self._rss_at_start = _rss_bytes()

    def worker(self, order: WorkerOrder) -> Worker | None:
        """One that plays a script, if there is a script; else None: core's worker runs the model on torch."""
        if self._options.script is None:
            return None
        options = self._options.on_device(order.device_index)
        if options.out_of_memory_tokens is not None:
            raise ConfigError("platform:fake.out_of_memory_tokens fails a forward, and a script runs none: leave it")
        self._reached("start_worker")
        # Imported here: probing must not load the engine.
        from turret_platform_fake.script import Script
        from turret_platform_fake.scripted import scripted_worker

        return scripted_worker(Script.read(Path(self._options.script)), order, options)

    def ops(self) -> OpProvider | None:
        """Ops that fail or dawdle on demand; None when nothing of the sort was asked for."""
        self._reached("ops")
        return self._faulty_ops() if self._options.disturbs_forwards else None

    def _faulty_ops(self) -> FaultyOps:
        # Imported here: probing must not load torch.
        from turret_platform_fake.faults import FaultyOps

        return FaultyOps(self._options)

    def synchronize(self, index: int) -> None:
        """Nothing runs ahead on this device."""
        self._reached("synchronize")

    def seed(self, value: int) -> None:
        """No generator of its own: torch's CPU generator is seeded by the worker."""
        self._reached("seed")


def _rss_bytes() -> int:
    """Resident memory of this process in bytes (field 2 of /proc/self/statm counts pages)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
