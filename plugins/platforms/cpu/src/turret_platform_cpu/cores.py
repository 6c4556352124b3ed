"""Which cores this process may use, and what the processor can do.

Owns: reading affinity, control-group quota, core topology and CPU flags. Knows no torch and no kernel.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from turret_platform_cpu.cgroup import group_files

__all__ = ["Processor", "compute_cpus", "first_of_each_core", "processor", "quota"]

FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")
"""Instruction sets worth naming, as Linux spells them."""


@dataclass(frozen=True, slots=True)
class Processor:
    """Model name and the instruction sets of `FLAGS` it has."""

    name: str
    features: frozenset[str]


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Processor:
    """What the system says of the first processor."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux: the name is all there is
        return Processor(platform.processor() or platform.machine(), frozenset())
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), value.strip())
    flags = set(fields.get("flags", fields.get("features", "")).split())
    return Processor(fields.get("model name", platform.machine()), frozenset(flags & set(FLAGS)))


def compute_cpus(root: Path = Path("/")) -> list[int]:
    """One logical CPU for each physical core this process may use, at most as many as its quota of CPU time allows.

    Two threads of one core share its vector units, so the second adds nothing but contention.
    """
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    cores = first_of_each_core(allowed, root)
    limit = quota(root)
    if limit is not None:
        cores = cores[: max(1, math.ceil(limit))]
    return cores


def first_of_each_core(cpus: Iterable[int], root: Path) -> list[int]:
    """The lowest allowed CPU of each physical core."""
    seen: set[str] = set()
    found = []
    for cpu in cpus:
        path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            siblings = path.read_text(encoding="ascii").strip()
        except OSError:  # no topology: every CPU counts as a core
            siblings = str(cpu)
        if siblings not in seen:
            seen.add(siblings)
            found.append(cpu)
    return found


def quota(root: Path = Path("/")) -> float | None:
    """CPUs' worth of time that the control groups of this process grant, or None if they do not limit it."""
    limits = []
    for text in group_files("cpu.max", root):
        granted, _, period = text.partition(" ")
        if granted != "max":
            limits.append(int(granted) / int(period or 100_000))
    granted_v1 = group_files("cpu.cfs_quota_us", root, controller="cpu")
    periods_v1 = group_files("cpu.cfs_period_us", root, controller="cpu")
    limits.extend(
        int(granted) / int(period) for granted, period in zip(granted_v1, periods_v1, strict=True) if int(granted) > 0
    )
    return min(limits) if limits else None
