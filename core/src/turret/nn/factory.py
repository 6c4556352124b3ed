"""`LayerFactory`: makes a model's layers and receives their weights.

Owns: the registry of layers by target name, and the door through which weights come in. Knows no family and no file.

For builders of models: `linear`, `embedding`, `norm`, `vector`, `rotary`, `attention_layer`.
For loaders: `place` (or `load`) for each stored tensor, then `finish`; or `fill_random`, which makes weights up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from turret.contracts.attention import AttentionQuery, KVSpec
from turret.contracts.models import Placement
from turret.contracts.ops import StorableKernel
from turret.contracts.quant import QuantMethod, QuantSpec
from turret.errors import LoadError
from turret.nn.linear import Embedding, Linear, Packer, Part
from turret.nn.linear_kernels import DequantKernel, PlainKernel
from turret.nn.norm import Norm, Vector
from turret.nn.ops import OpTable
from turret.nn.random_weights import make_up
from turret.nn.rotary import rotary_table
from turret.nn.spec import AttentionSpec, NormSpec, RopeSpec
from turret.nn.stored import StoredPiece
from turret.nn.weights import Parameter, Receiver

__all__ = ["LayerFactory", "Progress", "Quantization", "ReceivingLayer"]

Progress = Callable[[int, int], None]
"""progress(layers complete, layers in all)."""


@dataclass(frozen=True)
class Quantization:
    """The checkpoint's format and what its `parse` said: spec per quantized layer, by checkpoint layer name."""

    method: QuantMethod
    specs: Mapping[str, QuantSpec]


class ReceivingLayer(Protocol):
    """What a layer offers so that weights can reach it."""

    target: str

    def parameters(self) -> list[Parameter]: ...

    def adopt(self, tensors: Mapping[tuple[int, str], Tensor]) -> int: ...


class LayerFactory:
    """One per model. `dtype` is the activation dtype's torch name; `max_position` bounds positions."""

    def __init__(
        self, dtype: str, device: str, max_position: int, ops: OpTable, quantization: Quantization | None = None
    ) -> None:
        self.dtype = dtype
        self.device = device
        self.max_position = max_position
        self.ops = ops
        self.attention_layers: list[AttentionSpec] = []
        method = None if quantization is None else quantization.method
        kernels = [*ops.kernels, PlainKernel()] + ([] if method is None else [DequantKernel(method)])
        specs = {} if quantization is None else quantization.specs
        self._packer = Packer(kernels, method, specs, dtype, device)
        self._receivers: dict[str, Receiver] = {}
        self._linears: list[Linear] = []
        self._tables: dict[RopeSpec, Tensor] = {}

    # For builders of models.

    def linear(self, target: str, parts: Sequence[Part], in_features: int, bias: bool = False) -> Linear:
        """A linear layer; more than one part makes it fused, shard i being parts[i]."""
        layer = Linear(target, parts, in_features, bias, self._packer)
        self._linears.append(layer)
        self._register(layer)
        return layer

    def embedding(self, target: str, part: Part, hidden_size: int, tied: bool = False) -> Embedding:
        """A token embedding; `tied` when its weight also serves as the head."""
        layer = Embedding(target, part, hidden_size, tied, self._packer)
        if layer.linear is not None:
            self._linears.append(layer.linear)
        self._register(layer)
        return layer

    def norm(self, target: str, name: str, size: int, spec: NormSpec) -> Norm:
        """A norm whose stored parameters are `name`.weight and, if it has one, `name`.bias."""
        layer = Norm(target, name, size, spec, self.ops.ops, self.device)
        self._register(layer)
        return layer

    def vector(self, target: str, name: str, shape: tuple[int, ...]) -> Vector:
        """A lone float32 parameter, stored as `name`."""
        layer = Vector(target, name, shape, self.device)
        self._register(layer)
        return layer

    def rotary(self, spec: RopeSpec) -> Tensor:
        """The table cos_sin [max_position, R] of a rope, one for all layers that share the spec."""
        table = self._tables.get(spec)
        if table is None:
            table = rotary_table(spec, self.max_position, self.device)
            self._tables[spec] = table
        return table

    def attention_layer(self, spec: AttentionSpec) -> int:
        """Register the next layer that keeps K and V; its index in the cache."""
        self.attention_layers.append(spec)
        return len(self.attention_layers) - 1

    # For loaders.

    def place(self, placement: Placement, tensor: Tensor) -> None:
        """Take one stored tensor where its placement says: target `<layer>.<param>`, shard, transform, skip."""
        if placement.skip:
            return
        if placement.transform is not None:
            tensor = placement.transform(tensor)
        target, _, param = placement.target.rpartition(".")
        self.load(target, placement.shard, param, tensor)

    def load(self, target: str, shard: int | None, param: str, tensor: Tensor) -> None:
        """Take one tensor for parameter `param` of layer `target` (shard None or 0 where the layer is not fused).

        The tensor is kept, not copied, until its layer is complete. Raises LoadError that names the tensor, what was
        expected and what came.
        """
        receiver = self._receivers.get(target)
        if receiver is None:
            raise LoadError(f"the model has no layer {target!r} (parameter {param!r})")
        receiver.put(shard, param, tensor)

    def finish(self, progress: Progress | None = None) -> None:
        """Check that every layer is complete; raises LoadError that names the tensors that never came."""
        missing = [parameter.name for receiver in self._receivers.values() for parameter in receiver.missing()]
        if missing:
            shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            raise LoadError(f"the checkpoint lacks {len(missing)} of the model's tensors: {shown}")
        if progress is not None:
            progress(*self.progress)

    @property
    def progress(self) -> tuple[int, int]:
        """Layers complete (packed, sources released), and layers in all."""
        return sum(r.complete for r in self._receivers.values()), len(self._receivers)

    def parameters(self) -> Iterator[Parameter]:
        """Every stored tensor the model waits for or has received."""
        for receiver in self._receivers.values():
            yield from receiver.parameters

    def fill_random(self, seed: int = 0) -> None:
        """Make up every parameter that has not arrived: the same weights for the same seed, whatever the order."""
        for receiver in self._receivers.values():
            for parameter in receiver.missing():
                tensor = make_up(parameter, self.dtype, seed)
                receiver.put(parameter.shard, parameter.param, tensor)

    # For whoever keeps packed weights from start to start.

    @property
    def layouts(self) -> list[str]:
        """What the bytes of packed weights depend on; empty where no kernel keeps any."""
        return [kernel.layout for kernel in self._packer.kernels if isinstance(kernel, StorableKernel)]

    def stored(self) -> Iterator[tuple[str, StoredPiece, memoryview]]:
        """(target, piece, bytes) of every linear layer whose kernels keep packed weights."""
        for layer in self._linears:
            for piece, data in layer.stored(self._receivers[layer.target].held_bytes):
                yield layer.target, piece, data

    def restore(self, target: str, pieces: Sequence[StoredPiece]) -> list[memoryview]:
        """Memory for a layer's stored pieces: fill it, then call `restored`. Raises ValueError if one does not fit."""
        return self._linear(target).restore(pieces)

    def restored(self, target: str, pieces: Sequence[StoredPiece]) -> None:
        """The layer's memory is filled; its weights need not be placed any more."""
        self._linear(target).restored()
        self._receivers[target].fulfil(sum(piece.held for piece in pieces))

    def _linear(self, target: str) -> Linear:
        for layer in self._linears:
            if layer.target == target:
                return layer
        raise ValueError(f"the model has no linear layer {target!r}")

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights held, as handed to kernels."""
        return sum(receiver.held_bytes for receiver in self._receivers.values())

    @property
    def linear_kernels(self) -> dict[str, int]:
        """How many weights each linear kernel has packed, by the kernel's name."""
        return dict(Counter(name for layer in self._linears for name in layer.kernel_names))

    # For whoever chooses the attention backend and makes the cache.

    def attention_queries(self, block_size: int, kv_dtype: str) -> list[AttentionQuery]:
        """One query per distinct kind of attention layer."""
        queries = (_query(spec, self, block_size, kv_dtype) for spec in self.attention_layers)
        return list(dict.fromkeys(queries))

    def kv_specs(self, block_size: int, kv_dtype: str) -> list[KVSpec]:
        """Pages of each attention layer, in layer order."""
        return [
            KVSpec(a.num_kv_heads, a.head_dim, a.value_head_dim or a.head_dim, block_size, kv_dtype)
            for a in self.attention_layers
        ]

    def _register(self, layer: ReceivingLayer) -> None:
        if layer.target in self._receivers:
            raise ValueError(f"two layers are called {layer.target!r}")
        self._receivers[layer.target] = Receiver(layer.target, layer.parameters(), layer.adopt)


def _query(spec: AttentionSpec, factory: LayerFactory, block_size: int, kv_dtype: str) -> AttentionQuery:
    return AttentionQuery(
        device=factory.device,
        dtype=factory.dtype,
        kv_dtype=kv_dtype,
        head_size=spec.head_dim,
        value_head_size=spec.value_head_dim or spec.head_dim,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        block_size=block_size,
        sliding_window=spec.window is not None,
        softcap=spec.softcap > 0,
        sinks=spec.sinks,
        alibi=spec.alibi,
    )
