"""The recorder of forwards on the CPU.

Owns: `CPUGraphs`: what makes a recording complete, and where it is refused. Knows no model.

Native ops append themselves to the program while they run. What torch computes in between splits the program: the calls
are traced, for two steps so that it is known how they grow, and a replay makes them at their places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from turret.contracts import AttentionBackend, StepBindings, Variation
from turret.errors import EngineError, NotSupportedError
from turret_platform_cpu.attention import CPUAttention
from turret_platform_cpu.native import Native
from turret_platform_cpu.program import NativeProgram
from turret_platform_cpu.torch_parts import TorchParts, merge
from turret_platform_cpu.trace import Trace

__all__ = ["CPUGraphs"]


class CPUGraphs:
    """Recorder (contract `platform`, `SplittingRecorder`)."""

    def __init__(self, native: Native) -> None:
        self._native = native
        self._trace: Trace | None = None

    def records(self, backend: AttentionBackend) -> bool:
        """Only its own attention."""
        return isinstance(backend, CPUAttention)

    def record(
        self, forward: Callable[[], object], step: StepBindings, variation: Variation | None = None
    ) -> NativeProgram:
        """Run `forward` once, and once more where parts of it are not native. Without a variation all must be."""
        alone = step.ids.shape[0] < 2
        if alone and (variation is None or variation.max_tokens > 1):
            raise NotSupportedError("a step of one token does not show how far apart the rows of its tensors lie")
        most = step.ids.shape[0] if variation is None else variation.max_tokens
        program, trace = self._run(forward, step, most)
        if program.fault is not None:
            raise NotSupportedError(program.fault)
        parts = TorchParts(trace.calls)
        if parts.places:
            if variation is None:
                raise NotSupportedError(f"parts of it run on torch: {'; '.join(dict.fromkeys(parts.names))}")
            if not alone:
                _, varied = self._run(*variation.again(), most)
                parts = TorchParts(merge(trace, varied))
            program.split(parts)
        else:
            program.fuse()
        return program

    def outside(
        self, name: str, work: Callable[[StepBindings, Sequence[Tensor]], None], tensors: Sequence[Tensor]
    ) -> None:
        """Do `work` now and at this place of every replay; what it does to torch is its own affair."""
        if self._trace is None:
            raise EngineError(f"{name}: nothing is being recorded")
        self._trace.outside(name, work, tensors)

    def _run(self, forward: Callable[[], object], step: StepBindings, most: int) -> tuple[NativeProgram, Trace]:
        program = NativeProgram(self._native)
        trace = Trace(step, lambda: program.steps, most)
        self._trace = trace
        try:
            with program.recording(step), trace:
                forward()
        finally:
            self._trace = None
        if trace.fault is not None:
            raise NotSupportedError(trace.fault)
        return program, trace
