"""The quantization method `gguf`.

Owns: which layers of a GGUF file are packed and in what format, and what they store. Knows nothing of the file's
container nor of its tensor names, which arrive as the checkpoint's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from turret.contracts import LayerSpec, ParamSpec, QuantContext, QuantizedWeight, QuantSpec
from turret.errors import LoadError
from turret_quant_gguf.blocks import PLAIN_NAMES, block_named, spec_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GGUFMethod"]

SUFFIX = ".weight"


class GGUFMethod:
    """`QuantMethod` of llama.cpp's block formats. Stateless."""

    api = "1.0"
    name = "gguf"

    def parse(self, context: QuantContext) -> Mapping[str, QuantSpec]:
        """A spec for each matrix stored in blocks; float tensors and vectors stay plain.

        Raises LoadError that names the tensor if its block format is not read here.
        """
        specs: dict[str, QuantSpec] = {}
        for name, (stored, shape) in context.tensors.items():
            if stored.lower() in PLAIN_NAMES or not name.endswith(SUFFIX) or len(shape) < 2:
                continue
            try:
                specs[name.removesuffix(SUFFIX)] = spec_of(stored)
            except ValueError as exc:
                raise LoadError(f"tensor {name!r}: {exc}") from exc
        return specs

    def params(self, layer: LayerSpec, spec: QuantSpec) -> Mapping[str, ParamSpec]:
        """One uint8 tensor `weight` [N, row_bytes]; rows move whole, so N may be sharded anywhere."""
        block = block_named(spec.weight_type)
        try:
            width = block.row_bytes(layer.in_features)
        except ValueError as exc:
            raise LoadError(f"layer {layer.name!r}: {exc}") from exc
        return {"weight": ParamSpec(shape=(layer.out_features, width), dtype="uint8", shard_dim=0)}

    def canonicalize(self, weight: QuantizedWeight) -> QuantizedWeight:
        """The file's bytes are the canonical layout: nothing moves."""
        return weight

    def dequantize(self, weight: QuantizedWeight) -> Tensor:
        """Float32 [N, K], bit for bit what the `gguf` package decodes."""
        # Here and not at the top: parse and params run where torch is not loaded.
        from turret_quant_gguf.decode import decode

        if weight.spec is None:
            return weight.params["weight"].float()
        block = block_named(weight.spec.weight_type)
        rows = decode(block, weight.params["weight"])
        if rows.shape != (weight.out_features, weight.in_features):
            raise LoadError(
                f"a {block.name} weight decodes to {tuple(rows.shape)}, "
                f"expected {(weight.out_features, weight.in_features)}"
            )
        return rows
