"""The platform `cpu`.

Owns: what core must know to run on the processor: its features, memory, threads and defaults. Knows no kernel; loads
torch only in a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from turret.contracts import (
    ConfigPatch,
    ConfigView,
    DeviceInfo,
    GraphRecorder,
    KernelTime,
    MemoryInfo,
    OpProvider,
    WorkerEnv,
)
from turret.errors import NotSupportedError
from turret_platform_cpu.cores import compute_cpus, processor
from turret_platform_cpu.memory import memory_info, total_memory
from turret_platform_cpu.native import Native, load
from turret_platform_cpu.numa import interleave_memory, memory_nodes
from turret_platform_cpu.profile import NativeProfile

__all__ = ["CPUPlatform"]

logger = logging.getLogger(__name__)

BF16_FEATURES = frozenset({"avx512_bf16", "amx_bf16"})

INT8_LEVELS = frozenset({"avx512_bf16", "avx512_vnni", "avx512", "avx2"})
"""Instruction sets that multiply bytes, where rounded activations are several times faster than exact ones."""

DEFAULTS: Mapping[str, tuple[object, str]] = {
    "block_size": (16, "a page is one sub-block of the attention kernels"),
    "max_num_seqs": (64, "beyond it a step's time grows with its rows"),
    "max_num_batched_tokens": (512, "as many tokens already fill the cores; more only delays running requests"),
    "gpu_memory_utilization": (0.5, "the machine's memory is shared with other programs"),
}
"""Options by field name: value and reason."""


class CPUPlatform:
    """The processor (contract `platform`, 1.0)."""

    api = "1.0"
    name = "cpu"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._native: Native | None = None
        self._activations = str((options or {}).get("activations", "auto"))
        self._numa = str((options or {}).get("numa", "off"))
        if self._numa == "replicate":
            raise NotSupportedError(
                "platform:cpu.numa=replicate: one copy of the weights per node is not built "
                "(docs/decisions/0016-memory-of-several-nodes.md); interleave spreads one copy over all nodes"
            )

    def probe(self) -> Sequence[DeviceInfo]:
        """One device: all cores together."""
        found = processor()
        return [DeviceInfo(0, found.name, total_memory(), found.features)]

    def preferences(self, kind: str) -> Sequence[str]:
        """The native backend, then the readable one."""
        return {"attention": ("cpu", "torch")}.get(kind, ())

    def patch_config(self, view: ConfigView) -> ConfigPatch:
        """Defaults for options that the user left open."""
        wanted = dict(DEFAULTS)
        if processor().features & BF16_FEATURES:
            wanted["dtype"] = ("bfloat16", "the processor multiplies bfloat16 natively")
        else:
            wanted["dtype"] = ("float32", "the processor has no bfloat16 multiplication")
        open_options = {name: choice for name, choice in wanted.items() if name not in view.options}
        return ConfigPatch(
            values={name: value for name, (value, _) in open_options.items()},
            reasons={name: reason for name, (_, reason) in open_options.items()},
        )

    def torch_device(self, index: int) -> str:
        return "cpu"

    def memory(self, index: int) -> MemoryInfo:
        return memory_info()

    def start_worker(self, env: WorkerEnv) -> None:
        """Start the compute threads, one for each core this process may use unless told otherwise."""
        # Here and not at the top: probing and planning run in processes that never compute.
        import torch

        if self._numa == "interleave":  # before the threads, which inherit it
            _interleave()
        cpus = compute_cpus()
        threads = env.threads or len(cpus)
        native = self._library()
        if native is not None:
            native.start(threads, cpus if threads <= len(cpus) else ())
            logger.info("%d compute threads, %s kernels", threads, native.level())
        torch.set_num_threads(threads)

    def ops(self) -> OpProvider | None:
        """Native ops, or None where the library was not built."""
        native = self._library()
        if native is None:
            logger.warning(
                "turret-platform-cpu was installed without its native library: torch's ops serve instead, slowly; "
                "install a C++ compiler and reinstall it"
            )
            return None
        from turret_platform_cpu.ops import CPUOps

        return CPUOps(native, self._rounds(native))

    def graphs(self) -> GraphRecorder | None:
        """The recorder of native programs, or None where the library was not built."""
        native = self._library()
        if native is None:
            return None
        from turret_platform_cpu.recorder import CPUGraphs

        return CPUGraphs(native)

    def start_profile(self) -> None:
        """Count what each native kernel takes."""
        self._profile().start()

    def stop_profile(self) -> Sequence[KernelTime]:
        """What they took since."""
        return self._profile().stop()

    def _profile(self) -> NativeProfile:
        native = self._library()
        if native is None:
            raise NotSupportedError("torch's ops serve here, and nobody counts their time")
        return NativeProfile(native)

    def synchronize(self, index: int) -> None:
        """Nothing runs ahead of its caller."""

    def seed(self, value: int) -> None:
        import torch

        torch.manual_seed(value)

    def _rounds(self, native: Native) -> bool:
        """Whether activations are rounded to 8 bits where they meet packed integers; float32 ones never are."""
        if self._activations == "auto":
            return native.level() in INT8_LEVELS
        return self._activations == "int8"

    def _library(self) -> Native | None:
        if self._native is None:
            self._native = load()
        return self._native


def _interleave() -> None:
    nodes = memory_nodes()
    if len(nodes) > 1:
        interleave_memory(nodes)
        logger.info("memory interleaved over nodes %s", ", ".join(map(str, nodes)))
    else:
        logger.info("numa=interleave: this machine has one node of memory, so there is nothing to interleave")
