"""Joined kernels of a recorded program: the bits of the ops one by one, and nothing that is read is left out."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from turret.contracts import LinearCall, QuantizedWeight, StepBindings
from turret_platform_cpu.linear import NativeLinear
from turret_platform_cpu.native import Native
from turret_platform_cpu.ops import CPUOps
from turret_platform_cpu.recorder import CPUGraphs
from turret_quant_gguf.blocks import spec_of

Steps = Callable[[int], StepBindings]
HIDDEN, INNER, LAYERS, MOST = 128, 192, 3, 300
MODES = [(torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)]
"""Activations: exact in either type, and rounded to 8 bits."""


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


class Layers:
    """Feed-forward layers as a decoder runs them; `watch`: somebody reads what was gated."""

    def __init__(self, native: Native, name: str, mode: tuple[torch.dtype, bool]) -> None:
        dtype, int8 = mode
        self.ops, self.kernel, self.watch = CPUOps(native, int8), NativeLinear(native, int8), False
        self.up, self.down = (
            self.kernel.pack(weight(name, dtype, *shape)) for shape in ((2 * INNER, HIDDEN), (HIDDEN, INNER))
        )
        self.bias, self.gain = torch.randn(HIDDEN), torch.rand(HIDDEN) + 0.5
        self.residual, self.branch = torch.zeros(MOST, HIDDEN), torch.zeros(MOST, HIDDEN)
        self.normed, self.wide, self.active, self.seen = (
            torch.zeros(MOST, width, dtype=dtype) for width in (HIDDEN, 2 * INNER, INNER, 2 * INNER)
        )

    def start(self) -> None:
        self.residual.copy_(torch.randn(MOST, HIDDEN, generator=torch.Generator().manual_seed(4)))

    def result(self, rows: int) -> Tensor:
        parts = (self.residual, self.branch, self.normed, self.seen)
        return torch.cat([part[:rows].float() for part in parts], 1)

    def forward(self, rows: int) -> None:
        residual, branch, normed, wide, active, seen = (
            buffer[:rows]
            for buffer in (self.residual, self.branch, self.normed, self.wide, self.active, self.seen)
        )
        self.ops.rms_norm(normed, residual, self.gain, 1e-5, 0.0)
        for _ in range(LAYERS):
            self.kernel.apply(LinearCall(wide, normed, self.up))
            self.ops.silu_and_mul(active, wide)
            if self.watch:
                self.ops.copy(seen, wide)
            self.kernel.apply(LinearCall(branch, active, self.down, self.bias))
            self.ops.fused_add_rms_norm(normed, branch, residual, self.gain, 1e-5, 0.0)
        self.kernel.apply(LinearCall(branch, active, self.down))
        self.ops.add(residual, branch)
        self.kernel.apply(LinearCall(branch, active, self.down))


def weight(name: str, dtype: torch.dtype, out_features: int, in_features: int) -> QuantizedWeight:
    """Random values, or random blocks of 32 codes behind a small scale."""
    if name == "plain":
        rows = torch.randn(out_features, in_features, generator=torch.Generator().manual_seed(in_features))
        return QuantizedWeight(None, out_features, in_features, {"weight": (rows / 16).to(dtype)})
    size, rng = {"q4_0": 18, "q8_0": 34}[name], np.random.default_rng(in_features)
    blocks = rng.integers(0, 256, (out_features, in_features // 32, size), dtype=np.uint8)
    scales = rng.uniform(0.001, 0.002, blocks.shape[:2]).astype(np.float16)
    blocks[:, :, :2] = scales[..., None].view(np.uint8)
    packed = torch.from_numpy(blocks.reshape(out_features, -1).copy())
    return QuantizedWeight(spec_of(name), out_features, in_features, {"weight": packed})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["plain", "q4_0", "q8_0"])
def test_joined_kernels_give_the_bits_of_the_ops(
    name: str,
    mode: tuple[torch.dtype, bool],
    level: str,
    native: Native,
    bindings: Steps,
    threads: Callable[[int], None],
) -> None:
    layers = Layers(native, name, mode)
    program = CPUGraphs(native).record(lambda: layers.forward(3), bindings(3))
    # A norm, three kernels a layer, the last layer's gate, a linear that adds, one whose output stays.
    assert program.steps == 1 + 3 * LAYERS + 1 + 2
    for rows in (1, 2, 40, MOST):
        layers.start()
        layers.forward(rows)
        expected = layers.result(rows)
        for count in (1, 2, 3, 5):
            threads(count)
            layers.start()
            program.replay(bindings(rows))
            assert torch.equal(layers.result(rows), expected), f"{rows} rows, {count} threads"


def test_what_somebody_reads_is_stored(native: Native, bindings: Steps) -> None:
    layers = Layers(native, "plain", MODES[0])
    layers.watch = True
    program = CPUGraphs(native).record(lambda: layers.forward(3), bindings(3))
    assert program.steps == 1 + 5 * LAYERS + 2
