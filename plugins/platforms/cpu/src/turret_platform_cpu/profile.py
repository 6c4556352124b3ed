"""Time by kernel, as the native library counts it.

Owns: the counters as Python sees them. Knows no model.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_int64, create_string_buffer

from turret.contracts import KernelTime
from turret_platform_cpu.native import Native

__all__ = ["NativeProfile"]

ROW = struct.Struct("@16sqqqqqqqq")
"""`ProfileRow` of native/profile.h."""


class NativeProfile:
    """Counts from `start` to `stop`; the counters belong to the process."""

    def __init__(self, native: Native) -> None:
        self._switch = native.library.tc_profile
        self._switch.restype, self._switch.argtypes = None, [c_int]
        self._rows = native.library.tc_profile_rows
        self._rows.restype, self._rows.argtypes = c_int64, [c_char_p, c_int64]

    def start(self) -> None:
        """Count from nothing."""
        self._switch(1)

    def stop(self) -> Sequence[KernelTime]:
        """What was counted, the longest first."""
        self._switch(0)
        count = int(self._rows(create_string_buffer(1), 0))
        buffer = create_string_buffer(max(1, ROW.size * count))
        self._rows(buffer, count)
        found = [_kernel_time(ROW.unpack_from(buffer, ROW.size * row)) for row in range(count)]
        return sorted(found, key=lambda one: one.seconds, reverse=True)


def _kernel_time(row: tuple[bytes, int, int, int, int, int, int, int, int]) -> KernelTime:
    name, n, k, block_type, bits, calls, nanoseconds, rows, weight_bytes = row
    detail = f"[{n}, {k}] {bits} bit" + ("" if block_type < 0 else f" (ggml type {block_type})") if n else ""
    return KernelTime(
        name=name.rstrip(b"\0").decode(), detail=detail, calls=calls, seconds=nanoseconds / 1e9,
        weight_bytes=weight_bytes, operations=2 * rows * n * k,
    )  # fmt: skip
