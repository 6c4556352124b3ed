"""Ops of the CPU platform.

Owns: `CPUOps`: native ops by name, with the contract's signatures. Knows no layer.

Tensors of another dtype than float32 and bfloat16 go to the reference, as does every op that is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from turret.contracts import LinearKernel, Routing
from turret.nn.ops import REFERENCE_OPS
from turret_platform_cpu.experts import NativeExperts
from turret_platform_cpu.linear import NativeLinear
from turret_platform_cpu.native import Native
from turret_platform_cpu.sampling import NativeSample

__all__ = ["CPUOps"]

ELEMENTS = {torch.float32: 0, torch.bfloat16: 1}
SILU, GELU_TANH, GELU = 0, 1, 2
COPY, ADD, SCALE = 0, 1, 2
MAX_EXPERTS = 1024
ACTIVATIONS = {"silu": 3, "gelu_tanh": 4, "gelu": 5, "relu2": 6}


class CPUOps:
    """Native ops and linear kernels (contract `ops`, 1.0)."""

    api = "1.0"
    name = "cpu"

    def __init__(self, native: Native, int8: bool = False) -> None:
        self._native = native
        self._int8 = int8
        self._embedding = native.op("tc_embedding")
        self._norm = native.op("tc_norm")
        self._rotary = native.op("tc_rotary")
        self._gated = native.op("tc_gated")
        self._softcap = native.op("tc_softcap")
        self._layer_norm = native.op("tc_layer_norm")
        self._argmax = native.op("tc_argmax")
        self._sample = NativeSample(native)
        self._route = native.op("tc_route")
        self._add_gated = native.op("tc_add_gated")
        self._experts = NativeExperts(native, int8)
        self._pointwise = native.op("tc_pointwise")

    def ops(self) -> Mapping[str, Callable[..., None]]:
        """Ops by name."""
        return {
            "embedding": self.embedding,
            "rms_norm": self.rms_norm,
            "fused_add_rms_norm": self.fused_add_rms_norm,
            "layer_norm": self.layer_norm,
            "rotary": self.rotary,
            "silu_and_mul": self.silu_and_mul,
            "gelu_and_mul": self.gelu_and_mul,
            "activation": self.activation,
            "softcap": self.softcap,
            "add": self.add,
            "scale": self.scale,
            "copy": self.copy,
            "argmax": self.argmax,
            "sample": self._sample,
            "route": self.route,
            "moe": self._experts,
            "add_gated": self.add_gated,
        }

    def linear_kernels(self) -> Sequence[LinearKernel]:
        """One kernel for plain weights and for every block format."""
        return (NativeLinear(self._native, self._int8),)

    def embedding(self, out: Tensor, ids: Tensor, weight: Tensor, scale: float) -> None:
        kinds = ELEMENTS.get(weight.dtype), ELEMENTS.get(out.dtype)
        if None in kinds or not (weight.is_contiguous() and out.is_contiguous()):
            REFERENCE_OPS["embedding"](out, ids, weight, scale)
            return
        rows, width = out.shape
        self._embedding(
            weight.data_ptr(), ids.data_ptr(), out.data_ptr(), weight.shape[0], rows, width, scale, *kinds
        )

    def rms_norm(self, out: Tensor, x: Tensor, weight: Tensor, eps: float, offset: float) -> None:
        kinds = ELEMENTS.get(out.dtype), ELEMENTS.get(x.dtype), 0, ELEMENTS.get(weight.dtype)
        if None in kinds or x.dim() not in (2, 3):
            REFERENCE_OPS["rms_norm"](out, x, weight, eps, offset)
            return
        self._norm(
            out.data_ptr(), x.data_ptr(), 0, weight.data_ptr(), out.stride(0), x.stride(0), 0,
            *_runs(out, x), eps, offset, *kinds,
        )  # fmt: skip

    def layer_norm(self, out: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> None:
        kinds = [0 if tensor is None else ELEMENTS.get(tensor.dtype) for tensor in (out, x, weight, bias)]
        if None in kinds or x.dim() not in (2, 3):
            REFERENCE_OPS["layer_norm"](out, x, weight, bias, eps)
            return
        at, bias_at = (0 if tensor is None else tensor.data_ptr() for tensor in (weight, bias))
        self._layer_norm(
            out.data_ptr(), x.data_ptr(), at, bias_at, out.stride(0), x.stride(0), *_runs(out, x), eps, *kinds
        )

    def fused_add_rms_norm(
        self, out: Tensor, x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float
    ) -> None:
        """The residual may be float32 where x and out are bfloat16."""
        kinds = tuple(ELEMENTS.get(tensor.dtype) for tensor in (out, x, residual, weight))
        if None in kinds:
            REFERENCE_OPS["fused_add_rms_norm"](out, x, residual, weight, eps, offset)
            return
        rows, width = x.shape
        self._norm(
            out.data_ptr(), x.data_ptr(), residual.data_ptr(), weight.data_ptr(),
            out.stride(0), x.stride(0), residual.stride(0),
            1, 0, 0, rows, width, eps, offset, *kinds,
        )  # fmt: skip

    def rotary(self, q: Tensor, k: Tensor, cos_sin: Tensor, positions: Tensor, interleaved: bool) -> None:
        element = ELEMENTS.get(q.dtype)
        if element is None or k.dtype != q.dtype or cos_sin.dtype != torch.float32 or not cos_sin.is_contiguous():
            REFERENCE_OPS["rotary"](q, k, cos_sin, positions, interleaved)
            return
        rows, heads, _ = q.shape
        self._rotary(
            q.data_ptr(), k.data_ptr(), q.stride(0), k.stride(0), q.stride(1), k.stride(1),
            cos_sin.data_ptr(), positions.data_ptr(), rows, heads, k.shape[1], cos_sin.shape[1], interleaved, element,
        )  # fmt: skip

    def silu_and_mul(self, out: Tensor, x: Tensor) -> None:
        if not self._activate(out, x, SILU):
            REFERENCE_OPS["silu_and_mul"](out, x)

    def gelu_and_mul(self, out: Tensor, x: Tensor, tanh: bool) -> None:
        if not self._activate(out, x, GELU_TANH if tanh else GELU):
            REFERENCE_OPS["gelu_and_mul"](out, x, tanh)

    def activation(self, out: Tensor, x: Tensor, name: str) -> None:
        kind = ACTIVATIONS.get(name)
        if kind is None or not self._point(out, x, kind):
            REFERENCE_OPS["activation"](out, x, name)

    def add(self, x: Tensor, y: Tensor) -> None:
        if not self._point(x, y, ADD):
            REFERENCE_OPS["add"](x, y)

    def scale(self, x: Tensor, factor: float) -> None:
        if not self._point(x, x, SCALE, factor):
            REFERENCE_OPS["scale"](x, factor)

    def copy(self, out: Tensor, x: Tensor) -> None:
        if not self._point(out, x, COPY):
            REFERENCE_OPS["copy"](out, x)

    def route(self, weights: Tensor, ids: Tensor, logits: Tensor, bias: Tensor | None, routing: Routing) -> None:
        tensors = [weights, ids, logits, *([] if bias is None else [bias])]
        rows, experts = logits.shape
        if experts > MAX_EXPERTS or not all(tensor.is_contiguous() for tensor in tensors):
            REFERENCE_OPS["route"](weights, ids, logits, bias, routing)
            return
        self._route(
            weights.data_ptr(), ids.data_ptr(), logits.data_ptr(), 0 if bias is None else bias.data_ptr(),
            rows, experts, ids.shape[1], routing.scale, routing.scoring == "sigmoid", routing.renormalise,
        )  # fmt: skip

    def add_gated(self, x: Tensor, y: Tensor, gate: Tensor) -> None:
        kinds = ELEMENTS.get(x.dtype), ELEMENTS.get(y.dtype)
        if None in kinds or gate.dtype != torch.float32:
            REFERENCE_OPS["add_gated"](x, y, gate)
            return
        self._add_gated(
            x.data_ptr(), y.data_ptr(), gate.data_ptr(), x.stride(0), y.stride(0), gate.stride(0), *x.shape, *kinds
        )

    def argmax(self, token: Tensor, value: Tensor, x: Tensor) -> None:
        if x.dtype != torch.float32 or value.dtype != torch.float32 or x.stride(1) != 1:
            REFERENCE_OPS["argmax"](token, value, x)
            return
        self._argmax(x.data_ptr(), token.data_ptr(), value.data_ptr(), x.stride(0), *x.shape)

    def softcap(self, x: Tensor, cap: float) -> None:
        element = ELEMENTS.get(x.dtype)
        if element is None or not x.is_contiguous():
            REFERENCE_OPS["softcap"](x, cap)
            return
        self._softcap(x.data_ptr(), x.numel(), cap, element)

    def _activate(self, out: Tensor, x: Tensor, kind: int) -> bool:
        """Whether it was done here."""
        element = ELEMENTS.get(x.dtype)
        if element is None or out.dtype != x.dtype:
            return False
        rows, width = out.shape
        self._gated(out.data_ptr(), x.data_ptr(), out.stride(0), x.stride(0), rows, width, kind, element)
        return True

    def _point(self, out: Tensor, x: Tensor, kind: int, factor: float = 1.0) -> bool:
        """Whether it was done here."""
        kinds = ELEMENTS.get(out.dtype), ELEMENTS.get(x.dtype)
        if None in kinds or x.dim() != 2:
            return False
        rows, width = out.shape
        self._pointwise(
            out.data_ptr(), x.data_ptr(), out.stride(0), x.stride(0), rows, width, factor, kind, *kinds
        )
        return True


def _runs(out: Tensor, x: Tensor) -> tuple[int, int, int, int, int]:
    """Rows of a norm come in runs, the heads of a token: rows in a run, strides within one (out, x), rows, width."""
    if x.dim() == 2:
        return 1, 0, 0, x.shape[0], x.shape[1]
    tokens, inner, width = x.shape
    return inner, out.stride(1), x.stride(1), tokens * inner, width
