"""How much memory this process may use, and how much it does.

Owns: the machine's, the control groups' and the process's numbers put together. Knows no torch.
"""

from __future__ import annotations

import os
from pathlib import Path

from turret.contracts import MemoryInfo
from turret_platform_cpu.cgroup import group_files

__all__ = ["memory_info", "total_memory"]


def memory_info(root: Path = Path("/")) -> MemoryInfo:
    """Total: the machine's memory or the tightest group's limit. Free: what can be had without swapping, within it."""
    machine = _machine_memory(root)
    total, free = machine.get("MemTotal", _physical()), machine.get("MemAvailable", _physical())
    for limit, used in _group_limits(root):
        total = min(total, limit)
        free = min(free, max(0, limit - used))
    return MemoryInfo(total=total, free=min(free, total), used_here=_resident(root))


def total_memory(root: Path = Path("/")) -> int:
    """Bytes this process could ever have."""
    return memory_info(root).total


def _machine_memory(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes; empty where there is none."""
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if line.endswith("kB"))
    return {key: int(value.split()[0]) * 1024 for key, value in pairs}


def _group_limits(root: Path) -> list[tuple[int, int]]:
    """(limit, used) of each group that limits memory. Used leaves out file pages that the kernel would drop."""
    found = []
    names = (("memory.max", "memory.current", None), ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory"))
    for limit_name, used_name, controller in names:
        limits, used = group_files(limit_name, root, controller), group_files(used_name, root, controller)
        stats = group_files("memory.stat", root, controller)
        droppable = _inactive_file(stats[0]) if stats else 0
        if len(used) < len(limits):  # the root group of version 2 has no usage of its own
            used = used + ["0"] * (len(limits) - len(used))
        for limit, now in zip(limits, used, strict=False):
            if limit != "max":
                found.append((int(limit), max(0, int(now) - droppable)))
    return found


def _inactive_file(stat: str) -> int:
    """Bytes of inactive file pages in a memory.stat."""
    for line in stat.splitlines():
        key, _, value = line.partition(" ")
        if key in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _resident(root: Path) -> int:
    """Resident memory of this process."""
    try:
        fields = (root / "proc/self/statm").read_text(encoding="ascii").split()
    except OSError:  # no /proc: the most it ever had, which bounds it from above
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def _physical() -> int:
    """The machine's memory as the C library knows it."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
