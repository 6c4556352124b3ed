"""The recorder of forwards on the CPU.

Owns: `CPUGraphs` and the watch for work that happens outside the native library. Knows no model.

Native ops append themselves while they run; what torch computes in between would be missing from a replay, so every
torch op that is more than a view is noticed, and the forward refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from turret.contracts import StepBindings
from turret.errors import NotSupportedError
from turret_platform_cpu.native import Native
from turret_platform_cpu.program import NativeProgram

__all__ = ["CPUGraphs"]


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the torch ops that run, views aside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[str, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not func.is_view:
            name = str(func.overloadpacket)
            self.seen[name] = self.seen.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


class CPUGraphs:
    """Recorder (contract `platform`, `GraphRecorder`)."""

    def __init__(self, native: Native) -> None:
        self._native = native

    def record(self, forward: Callable[[], object], step: StepBindings) -> NativeProgram:
        """Run `forward` once; it must do all its work in native ops."""
        if step.ids.shape[0] < 2:
            raise NotSupportedError("a step of one token does not show how far apart the rows of its tensors lie")
        program, watch = NativeProgram(self._native), _Watch()
        with program.recording(step), watch:
            forward()
        if watch.seen:
            found = ", ".join(f"{name} ({count} times)" for name, count in sorted(watch.seen.items()))
            raise NotSupportedError(f"parts of it run on torch: {found}")
        if program.fault is not None:
            raise NotSupportedError(program.fault)
        return program
