"""Recorded programs of the native library.

Owns: `NativeProgram`: a program's memory, the addresses that a replay takes, and the order of native kernels and torch
calls where there are any. Knows no model.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import addressof, create_string_buffer

from turret.contracts import StepBindings
from turret.errors import EngineError
from turret_platform_cpu.native import Native, refuse
from turret_platform_cpu.torch_parts import TorchParts

__all__ = ["NativeProgram"]

GEOMETRY = struct.Struct("@PPPPqq")
INPUTS = struct.Struct("@PPPqq")
"""`Geometry` and `Inputs` of native/program.cpp."""


class NativeProgram:
    """Ops in the order in which they were recorded (contract `platform`, `Program`)."""

    def __init__(self, native: Native) -> None:
        self._library = native.library
        self._handle = self._library.tc_program_new()
        if not self._handle:
            raise MemoryError("no memory for a recorded program")
        self._groups = create_string_buffer(1)
        self._parts: TorchParts | None = None

    def __del__(self) -> None:
        if self._handle:
            self._library.tc_program_free(self._handle)

    @property
    def steps(self) -> int:
        """Ops of the program."""
        return int(self._library.tc_program_steps(self._handle))

    @property
    def fault(self) -> str | None:
        """Why it cannot be replayed, or None."""
        found: bytes | None = self._library.tc_program_fault(self._handle)
        return None if found is None else found.decode()

    @property
    def splits(self) -> list[str]:
        """The torch functions that compute at each split."""
        return [] if self._parts is None else self._parts.names

    def fuse(self) -> None:
        """Join kernels whose results nobody else reads; only for a program without splits."""
        self._library.tc_program_fuse(self._handle)

    def split(self, parts: TorchParts) -> None:
        """Make these calls in between from here on."""
        self._parts = parts

    @contextmanager
    def recording(self, step: StepBindings) -> Iterator[None]:
        """Within it, every native op of this thread is also appended to the program."""
        if self._library.tc_record_start(self._handle, self._inputs(step)):
            raise EngineError("this thread is recording another program")
        try:
            yield
        finally:
            self._library.tc_record_stop()

    def replay(self, step: StepBindings) -> None:
        """Run every op for another step; raises as the ops would."""
        inputs, first = self._inputs(step), 0
        if self._parts is not None:
            for place in self._parts.places:
                self._run(inputs, first, place)
                self._parts.run(place, step)
                first = place
        self._run(inputs, first, self.steps)

    def _run(self, inputs: bytes, first: int, last: int) -> None:
        if first < last and (code := self._library.tc_replay(self._handle, inputs, first, last)):
            refuse("a recorded forward", code)

    def _inputs(self, step: StepBindings) -> bytes:
        """The addresses of a step, good as long as its tensors."""
        size, groups = GEOMETRY.size, step.attention
        if len(self._groups) != size * len(groups):
            self._groups = create_string_buffer(size * len(groups))
        for number, batch in enumerate(groups):
            table = batch.block_table
            GEOMETRY.pack_into(
                self._groups, size * number, batch.query_start.data_ptr(), batch.seq_lens.data_ptr(), table.data_ptr(),
                batch.slot_mapping.data_ptr(), table.stride(0), len(batch.seq_lens_list),
            )  # fmt: skip
        return INPUTS.pack(
            step.ids.data_ptr(), step.positions.data_ptr(), addressof(self._groups), len(groups), step.ids.shape[0]
        )
