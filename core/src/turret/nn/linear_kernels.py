"""Reference linear kernels: plain weights through torch, quantized weights through their method's dequantize.

Owns: `PlainKernel`, `DequantKernel`. Knows no format.

Rows of x never meet, but the matrix product underneath is torch's: on some devices its bits depend on how many rows
there are. A platform that promises the same bits for any batch brings kernels of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from turret.contracts.ops import LinearCall, LinearQuery
from turret.contracts.quant import QuantizedWeight, QuantMethod
from turret.contracts.verdict import Verdict

__all__ = ["DequantKernel", "PlainKernel", "sliceable_rows"]

CHUNK_VALUES = 1 << 22
"""Values that the dequantizing kernel expands at a time (16 MiB of float32)."""


class PlainKernel:
    """y = x W^T + b for weights that are plain tensors of the activation dtype."""

    name = "reference"

    def supports(self, query: LinearQuery) -> Verdict:
        if query.stored is not None:
            return Verdict.no(f"rows are {query.stored}")
        return Verdict.yes() if query.spec is None else Verdict.no("quantized weight")

    def pack(self, weight: QuantizedWeight) -> Tensor:
        return weight.params["weight"]

    def apply(self, call: LinearCall) -> None:
        _multiply(call.out, call.x, call.packed, call.bias)

    def rows(self, packed: Tensor, ids: Tensor, out: Tensor) -> None:
        if packed.dtype == out.dtype:
            torch.index_select(packed, 0, ids, out=out)
        else:
            out.copy_(packed.index_select(0, ids))


@dataclass(slots=True)
class _Packed:
    """`sliceable`: every parameter is row-major over the N out features, so that rows can be expanded on their own."""

    weight: QuantizedWeight
    sliceable: bool


class DequantKernel:
    """y = x W^T + b for any quantized weight, by expanding a chunk of rows at a time. Slow, and right everywhere."""

    name = "dequantize"

    def __init__(self, method: QuantMethod) -> None:
        self._method = method

    def supports(self, query: LinearQuery) -> Verdict:
        return Verdict.no("plain weight") if query.spec is None else Verdict.yes()

    def pack(self, weight: QuantizedWeight) -> _Packed:
        return _Packed(weight, sliceable_rows(weight))

    def apply(self, call: LinearCall) -> None:
        packed: _Packed = call.packed
        count = packed.weight.out_features
        step = max(1, CHUNK_VALUES // packed.weight.in_features) if packed.sliceable else count
        for start in range(0, count, step):
            stop = min(count, start + step)
            dense = self._expand(packed, slice(start, stop)).to(call.x.dtype)
            bias = None if call.bias is None else call.bias[start:stop]
            _multiply(call.out[:, start:stop], call.x, dense, bias)

    def rows(self, packed: _Packed, ids: Tensor, out: Tensor) -> None:
        out.copy_(self._expand(packed, ids))

    def _expand(self, packed: _Packed, rows: slice | Tensor) -> Tensor:
        weight = packed.weight
        if not packed.sliceable:
            return self._method.dequantize(weight)[rows]
        params = {name: tensor[rows] for name, tensor in weight.params.items()}
        count = next(iter(params.values())).shape[0]
        return self._method.dequantize(QuantizedWeight(weight.spec, count, weight.in_features, params))


def sliceable_rows(weight: QuantizedWeight) -> bool:
    """Whether every parameter has N as its first dimension; an order of columns has not, even where K is N."""
    if weight.spec is not None and weight.spec.act_order:
        return False
    return all(t.dim() > 0 and t.shape[0] == weight.out_features for t in weight.params.values())


def _multiply(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """out = x W^T + b without an intermediate when the dtypes agree."""
    if out.dtype != x.dtype:
        out.copy_(torch.nn.functional.linear(x, weight, bias))
    elif bias is None:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.addmm(bias, x, weight.t(), out=out)
