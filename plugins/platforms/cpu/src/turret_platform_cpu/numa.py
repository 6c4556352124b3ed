"""Memory on machines with several nodes: which nodes there are, and spreading pages over them.

Owns: the node topology and this thread's memory policy. Knows no kernel and no torch.

A page lies on the node of the thread that touches it first. Weights are packed and caches first written by any of the
compute threads, so without a policy they lie where chance put them; `interleave` puts page after page on node after
node, so that every thread has the bandwidth of all nodes.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from turret.errors import PluginError

__all__ = ["POLICIES", "interleave_memory", "memory_nodes", "memory_policy"]

POLICIES = ("off", "interleave", "replicate")

_DEFAULT, _INTERLEAVE = 0, 3
_MASK_WORDS = 16
"""A mask of 1024 nodes, as many as Linux can have."""

_CALLS: Mapping[str, tuple[int, int]] = MappingProxyType({"x86_64": (238, 239), "aarch64": (237, 236)})
"""Numbers of set_mempolicy and get_mempolicy; the C library has no functions for them."""


def memory_nodes(root: Path = Path("/")) -> list[int]:
    """Nodes with memory that this process may use; empty where the system does not say."""
    folder = root / "sys/devices/system/node"
    nodes = _numbers(folder / "has_memory") or _numbers(folder / "online")
    allowed = _allowed(root / "proc/self/status")
    return [node for node in nodes if allowed is None or node in allowed]


def interleave_memory(nodes: Sequence[int]) -> None:
    """Pages that this thread, and threads it starts from now on, touch first go round the nodes; none: as usual.

    Raises PluginError where the system refuses.
    """
    mask = (ctypes.c_ulong * _MASK_WORDS)()
    bits = ctypes.sizeof(ctypes.c_ulong) * 8
    for node in nodes:
        mask[node // bits] |= 1 << node % bits
    _call(0, ctypes.c_long(_INTERLEAVE if nodes else _DEFAULT), mask, ctypes.c_ulong(_MASK_WORDS * bits))


def memory_policy() -> list[int]:
    """Nodes that this thread's pages are interleaved over; none if they are not."""
    mode, mask = ctypes.c_int(), (ctypes.c_ulong * _MASK_WORDS)()
    bits = ctypes.sizeof(ctypes.c_ulong) * 8
    _call(1, ctypes.byref(mode), mask, ctypes.c_ulong(_MASK_WORDS * bits), ctypes.c_void_p(), ctypes.c_ulong())
    if mode.value != _INTERLEAVE:
        return []
    return [node for node in range(_MASK_WORDS * bits) if mask[node // bits] >> node % bits & 1]


def _call(which: int, *arguments: object) -> None:
    numbers = _CALLS.get(platform.machine())
    if numbers is None or not Path("/proc/self").exists():
        here = f"{platform.system()} on {platform.machine()}"
        raise PluginError(f"numa: no memory policies are known for {here}; use off")
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(ctypes.c_long(numbers[which]), *arguments) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise PluginError(
            f"numa: the system refuses a memory policy ({reason}); a container needs the capability SYS_NICE for it, "
            "or use off"
        )


def _allowed(status: Path) -> set[int] | None:
    """Nodes of the process's cpuset; None where the system does not say."""
    try:
        lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # no /proc: nothing limits it that we could know
        return None
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("Mems_allowed_list:")]
    return set(_listed(found[0])) if found else None


def _numbers(file: Path) -> list[int]:
    try:
        return _listed(file.read_text(encoding="ascii").strip())
    except OSError:  # a kernel without NUMA has no such file
        return []


def _listed(text: str) -> list[int]:
    """`0-2,5` as [0, 1, 2, 5]."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
