"""Linear layers and token embeddings over packed weights.

Owns: `Part`, `Linear` (fused or not), `Embedding`, and how parts are fused and packed once. Knows no format or kernel.

A fused layer is a list of parts: what the checkpoint stores apart and the model multiplies at once. Parts whose numbers
are described alike become one weight; others stay apart, each writing its column slice of the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from turret.contracts.ops import LinearCall, LinearKernel, LinearQuery
from turret.contracts.quant import LayerSpec, ParamSpec, QuantizedWeight, QuantMethod, QuantSpec
from turret.errors import LoadError
from turret.nn.linear_kernels import sliceable_rows
from turret.nn.staging import staging
from turret.nn.stored import StoredPiece, pieces_in_memory, rebuilt
from turret.nn.weights import FLOATING, Parameter, torch_dtype

__all__ = ["Embedding", "Linear", "Packer", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """One stored weight of a (fused) layer: the checkpoint's layer `name` (without `.weight`) and its out features."""

    name: str
    out_features: int


@dataclass(slots=True)
class _Piece:
    """What one kernel call computes: columns [start, stop) of the output."""

    kernel: LinearKernel
    packed: Any
    start: int
    stop: int


@dataclass(frozen=True)
class Packer:
    """Chooses a kernel for a weight and lets it pack. `specs` are the quantized layers by checkpoint name."""

    kernels: Sequence[LinearKernel]
    method: QuantMethod | None
    specs: Mapping[str, QuantSpec]
    dtype: str
    device: str

    def spec(self, name: str) -> QuantSpec | None:
        return self.specs.get(name)

    def params(self, layer: LayerSpec) -> Mapping[str, ParamSpec]:
        """The tensors that the checkpoint stores for a layer."""
        spec = self.specs.get(layer.name)
        if spec is None or self.method is None:
            return {"weight": ParamSpec((layer.out_features, layer.in_features), FLOATING)}
        return self.method.params(layer, spec)

    def kernel(self, weight: QuantizedWeight, name: str) -> LinearKernel:
        stored = _other_dtype(weight, self.dtype)
        query = LinearQuery(weight.spec, weight.out_features, weight.in_features, self.dtype, self.device, stored)
        refusals = []
        for kernel in self.kernels:
            verdict = kernel.supports(query)
            if verdict.ok:
                return kernel
            refusals.append(f"{kernel.name}: {', '.join(verdict.reasons)}")
        raise LoadError(f"{name}: no linear kernel takes {weight.spec}; " + "; ".join(refusals))

    def keeps(self, weight: QuantizedWeight) -> bool:
        """Whether some kernel takes a plain weight of 16 bits as it is stored, in another dtype than the model's."""
        stored = _other_dtype(weight, self.dtype)
        if stored not in ("float16", "bfloat16"):
            return False
        query = LinearQuery(None, weight.out_features, weight.in_features, self.dtype, self.device, stored)
        return any(kernel.supports(query).ok for kernel in self.kernels)

    def canonical(self, weight: QuantizedWeight) -> QuantizedWeight:
        """On the device and in the layout its spec names; plain weights stay as given until they are stacked."""
        if weight.spec is None or self.method is None:
            return weight
        weight.params = {name: tensor.to(self.device) for name, tensor in weight.params.items()}
        return self.method.canonicalize(weight)


class Linear:
    """out[T, N] = x[T, K] W^T + b, where W's rows may come from several parts."""

    def __init__(self, target: str, parts: Sequence[Part], in_features: int, bias: bool, packer: Packer) -> None:
        self.target = target
        self.parts = tuple(parts)
        self.in_features = in_features
        self.out_features = sum(part.out_features for part in parts)
        self.bias: Tensor | None = None
        self._has_bias = bias
        self._packer = packer
        self._pieces: list[_Piece] = []
        self._filling: list[_Piece] = []
        self._calls: list[tuple[Any, LinearCall]] = []

    def parameters(self) -> list[Parameter]:
        """Stored tensors of all parts."""
        wanted = []
        for shard, part in enumerate(self.parts):
            layer = LayerSpec(part.name, part.out_features, self.in_features)
            for param, spec in self._packer.params(layer).items():
                wanted.append(Parameter(self.target, shard, param, f"{part.name}.{param}", spec))
            if self._has_bias:
                shape = ParamSpec((part.out_features,), FLOATING)
                wanted.append(Parameter(self.target, shard, "bias", f"{part.name}.bias", shape, "zeros"))
        return wanted

    def adopt(self, tensors: Mapping[tuple[int, str], Tensor]) -> int:
        """Fuse what can be fused, pack each weight once; the bytes held."""
        held = 0
        if self._has_bias:
            biases = [tensors[shard, "bias"] for shard in range(len(self.parts))]
            dtype = torch_dtype(self._packer.dtype)
            self.bias = torch.cat(biases).to(device=self._packer.device, dtype=dtype)
            held = self.bias.nbytes
        if self._pieces:  # its weights were restored
            self._bind()
            return held
        start = 0
        for weight in _fuse([self._weight(shard, tensors) for shard in range(len(self.parts))], self._packer):
            held += sum(tensor.nbytes for tensor in weight.params.values())
            kernel = self._packer.kernel(weight, self.target)
            stop = start + weight.out_features
            self._pieces.append(_Piece(kernel, kernel.pack(weight), start, stop))
            start = stop
        self._bind()
        return held

    def stored(self, held: int) -> Iterator[tuple[StoredPiece, memoryview]]:
        """Its packed weights as bytes, borrowed; nothing where a kernel keeps nothing."""
        return pieces_in_memory([(p.kernel, p.packed, p.start, p.stop) for p in self._pieces], held)

    def restore(self, pieces: Sequence[StoredPiece]) -> list[memoryview]:
        """Memory for stored pieces: fill it, then call `restored`. Raises ValueError for what does not fit."""
        found = [(*rebuilt(self._packer.kernels, piece), piece) for piece in pieces]
        self._filling = [_Piece(kernel, packed, piece.start, piece.stop) for kernel, packed, _, piece in found]
        return [memory for _, _, memory, _ in found]

    def restored(self) -> None:
        """The memory is filled: these are its weights."""
        self._pieces, self._filling = self._filling, []
        self._bind()

    def _bind(self) -> None:
        self._calls = [(piece.kernel.apply, self._call(piece)) for piece in self._pieces]

    def _weight(self, shard: int, tensors: Mapping[tuple[int, str], Tensor]) -> QuantizedWeight:
        part = self.parts[shard]
        own = {param: tensor for (s, param), tensor in tensors.items() if s == shard and param != "bias"}
        weight = QuantizedWeight(self._packer.spec(part.name), part.out_features, self.in_features, own)
        return self._packer.canonical(weight)

    def _call(self, piece: _Piece) -> LinearCall:
        nothing = torch.empty(0)
        bias = None if self.bias is None else self.bias[piece.start : piece.stop]
        return LinearCall(nothing, nothing, piece.packed, bias)

    def __call__(self, out: Tensor, x: Tensor) -> None:
        """out[T, N] from x[T, K]; the call values are reused, so a forward makes no objects here."""
        calls = self._calls
        if len(calls) == 1:
            apply, call = calls[0]
            call.out, call.x = out, x
            apply(call)
            return
        for piece, (apply, call) in zip(self._pieces, calls, strict=True):
            call.out, call.x = out[:, piece.start : piece.stop], x
            apply(call)

    @property
    def sole(self) -> tuple[LinearKernel, Any] | None:
        """The kernel and what it packed, where that is one weight and there is no bias."""
        if len(self._pieces) != 1 or self.bias is not None:
            return None
        return self._pieces[0].kernel, self._pieces[0].packed

    def rows(self, out: Tensor, ids: Tensor) -> None:
        """out[T, K] = W[ids]; only for layers of one part."""
        piece = self._pieces[0]
        piece.kernel.rows(piece.packed, ids, out)

    @property
    def kernel_names(self) -> list[str]:
        """Which kernels compute this layer, for plans and explanations."""
        return [piece.kernel.name for piece in self._pieces]


class Embedding:
    """out[T, H] = W[ids] * scale. When W also serves as the head, or is quantized, it lies packed in a kernel."""

    def __init__(self, target: str, part: Part, hidden_size: int, tied: bool, packer: Packer) -> None:
        self.target = target
        self.part = part
        self.hidden_size = hidden_size
        self.weight: Tensor | None = None
        self.linear: Linear | None = None
        self._packer = packer
        if tied or packer.spec(part.name) is not None:
            self.linear = Linear(target, [part], hidden_size, False, packer)

    def parameters(self) -> list[Parameter]:
        if self.linear is not None:
            return self.linear.parameters()
        shape = ParamSpec((self.part.out_features, self.hidden_size), FLOATING)
        return [Parameter(self.target, 0, "weight", f"{self.part.name}.weight", shape)]

    def adopt(self, tensors: Mapping[tuple[int, str], Tensor]) -> int:
        if self.linear is not None:
            return self.linear.adopt(tensors)
        weight = tensors[0, "weight"].to(device=self._packer.device, dtype=torch_dtype(self._packer.dtype))
        self.weight = weight
        return weight.nbytes


def _fuse(weights: list[QuantizedWeight], packer: Packer) -> list[QuantizedWeight]:
    """Stack neighbours that are described alike and row-major over N; the order of rows stays."""
    fused: list[list[QuantizedWeight]] = []
    for weight in weights:
        if fused and _alike(fused[-1][-1], weight):
            fused[-1].append(weight)
        else:
            fused.append([weight])
    return [_stack(group, packer) for group in fused]


def _alike(a: QuantizedWeight, b: QuantizedWeight) -> bool:
    if a.spec != b.spec or a.params.keys() != b.params.keys() or not (sliceable_rows(a) and sliceable_rows(b)):
        return False
    pairs = [(a.params[name], b.params[name]) for name in a.params]
    return all(x.shape[1:] == y.shape[1:] and (a.spec is None or x.dtype == y.dtype) for x, y in pairs)


def _stack(group: list[QuantizedWeight], packer: Packer) -> QuantizedWeight:
    first = group[0]
    if first.spec is None:
        rows = [weight.params["weight"] for weight in group]
        kept = all(part.dtype == rows[0].dtype for part in rows) and packer.keeps(first)
        params = {"weight": _cast_rows(rows, rows[0].dtype if kept else torch_dtype(packer.dtype), packer)}
    elif len(group) == 1:
        return first
    else:
        params = {name: _joined([weight.params[name] for weight in group]) for name in first.params}
    return QuantizedWeight(first.spec, sum(weight.out_features for weight in group), first.in_features, params)


def _other_dtype(weight: QuantizedWeight, dtype: str) -> str | None:
    """The dtype of a plain weight's rows if it is another than the model's."""
    if weight.spec is not None:
        return None
    stored = str(weight.params["weight"].dtype).removeprefix("torch.")
    return None if stored == dtype else stored


def _cast_rows(parts: list[Tensor], dtype: torch.dtype, packer: Packer) -> Tensor:
    """Plain parts [N_i, K] as one [N, K] of one dtype, cast and stacked in one copy: a cast of each part on the way
    would double a layer's memory while it loads. One part that fits already is not copied."""
    if len(parts) == 1 and parts[0].dtype == dtype:
        return parts[0].to(device=packer.device)
    stacked = staging((sum(len(p) for p in parts), parts[0].shape[1]), dtype, packer.device)
    return _copied(stacked, parts)


def _joined(parts: list[Tensor]) -> Tensor:
    """Parts of one dtype and device, one below the other."""
    first = parts[0]
    stacked = staging((sum(len(p) for p in parts), *first.shape[1:]), first.dtype, str(first.device))
    return _copied(stacked, parts)


def _copied(stacked: Tensor, parts: list[Tensor]) -> Tensor:
    start = 0
    for part in parts:
        stacked[start : start + len(part)].copy_(part)
        start += len(part)
    return stacked
