"""The op `moe` in the native library.

Owns: `NativeExperts`: which mixtures it takes, and the table of their weights. Knows no layer.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from types import MappingProxyType

import torch

from turret.contracts import ExpertWeights, MoECall
from turret.nn.ops import REFERENCE_OPS
from turret_platform_cpu.linear import ELEMENTS, EXACT, INT8, NativeLinear
from turret_platform_cpu.native import Native

__all__ = ["NativeExperts"]

GATES: Mapping[str, int] = MappingProxyType({"silu": 0, "gelu_tanh": 1, "gelu": 2})
"""`gate` of native/kernels.h."""


class NativeExperts:
    """`moe` (contract `ops`): every expert's weights are read once for all tokens that chose it, in one op.

    With `int8`, bfloat16 activations are rounded where they meet blocks, as in linears. Experts that are not packed
    alike go to the reference, one by one.
    """

    def __init__(self, native: Native, int8: bool = False) -> None:
        self._native = native
        self._int8 = int8
        self._call = native.op("tc_experts")

    def __call__(self, call: MoECall) -> None:
        """out[T,H] from x[T,H]."""
        table = None if call.packed is None else self._table(call.packed)
        kinds = ELEMENTS.get(call.x.dtype), ELEMENTS.get(call.out.dtype)
        if call.packed is None or not table or None in kinds or not _plain(call):
            REFERENCE_OPS["moe"](call)
            return
        activations = INT8 if self._int8 and call.x.dtype == torch.bfloat16 else EXACT
        rows, top_k = call.ids.shape
        pointers = (tensor.data_ptr() for tensor in (call.x, call.weights, call.ids, call.out))
        self._call(
            table.buffer_info()[0], *pointers, call.x.stride(0), call.out.stride(0), rows, len(call.packed.up), top_k,
            *kinds, activations, GATES[call.packed.activation], 0, 0,
        )  # fmt: skip

    def _table(self, packed: ExpertWeights) -> array[int]:
        """Handles of gate and up, and of down, expert by expert; empty where they cannot be multiplied together."""
        if packed.state is None:
            packed.state = array("Q")
            if self._takes(packed):
                for up, down in zip(packed.up, packed.down, strict=True):
                    packed.state.extend((up.handle, down.handle))
        table: array[int] = packed.state
        return table

    def _takes(self, packed: ExpertWeights) -> bool:
        if not isinstance(packed.kernel, NativeLinear) or packed.activation not in GATES:
            return False
        up, down = packed.up[0], packed.down[0]
        if up.out_features != 2 * down.in_features or up.in_features != down.out_features:
            return False
        alike = self._native.alike
        return all(alike(one, up) for one in packed.up) and all(alike(one, down) for one in packed.down)


def _plain(call: MoECall) -> bool:
    """Whether its tensors lie as the library takes them."""
    last = call.x.stride(-1) == call.out.stride(-1) == 1
    return last and call.weights.is_contiguous() and call.ids.is_contiguous() and call.weights.dtype == torch.float32
