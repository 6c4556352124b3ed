"""How a profile is shown: stages of a step, and kernels by time.

Owns: the layout. Knows nothing of how time was counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["profile_lines"]

_LEAST = 0.001
"""Kernels below this share of all kernels' time are shown as one line."""


def profile_lines(profile: Mapping[str, Any]) -> list[str]:
    """Microseconds a step by stage, then by kernel with the speed at which it read weights and computed."""
    steps = max(1, profile["steps"])
    whole = sum(profile["stages"].values())
    lines = [f"profile of {profile['steps']} steps, microseconds a step", f"{'stage':44}{'us':>10}{'share':>8}"]
    for name, seconds in profile["stages"].items():
        lines.append(f"{name:44}{seconds / steps * 1e6:10.1f}{_share(seconds, whole):>8}")
    lines.append(f"{'all stages':44}{whole / steps * 1e6:10.1f}")
    kernels = profile["kernels"]
    total = sum(kernel["seconds"] for kernel in kernels)
    if kernels:
        lines.append(f"{'kernel':44}{'us':>10}{'share':>8}{'calls':>8}{'GB/s':>8}{'GFLOP/s':>9}")
    small = [kernel for kernel in kernels if kernel["seconds"] < _LEAST * total]
    lines += [_kernel_line(kernel, steps, total) for kernel in kernels if kernel not in small]
    if small:
        seconds = sum(kernel["seconds"] for kernel in small)
        lines.append(f"{f'{len(small)} more':44}{seconds / steps * 1e6:10.1f}{_share(seconds, total):>8}")
    if kernels:
        lines.append(f"{'all kernels':44}{total / steps * 1e6:10.1f}")
    return lines


def _kernel_line(kernel: Mapping[str, Any], steps: int, total: float) -> str:
    seconds = kernel["seconds"]
    speeds = "".join(
        f"{amount / seconds / 1e9:{width}.1f}" if amount else " " * width
        for amount, width in ((kernel["weight_bytes"], 8), (kernel["operations"], 9))
    )
    name = f"{kernel['name']} {kernel['detail']}".strip()
    share = _share(seconds, total)
    return f"{name:44}{seconds / steps * 1e6:10.1f}{share:>8}{kernel['calls'] / steps:8.1f}{speeds}".rstrip()


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else ""
