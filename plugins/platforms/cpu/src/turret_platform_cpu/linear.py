"""Linear layers on packed weights in the native library.

Owns: `NativeLinear`, which weights it takes and how they are handed over. Knows no checkpoint format beyond the names
of llama.cpp's blocks and the canonical packing (contract `quant`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

import torch
from torch import Tensor

from turret.contracts import LayerSpec, LinearCall, LinearQuery, QuantizedWeight, QuantSpec, Verdict
from turret.nn.canonical import canonical_params
from turret_platform_cpu.native import Native, PackedWeight, library_path

__all__ = ["BLOCK_TYPES", "NativeLinear"]

ELEMENTS = {torch.float32: 0, torch.bfloat16: 1}
STORED_ELEMENTS = {**ELEMENTS, torch.float16: 2}
EXACT, INT8 = 0, 1
STORE, ADD_TO, GATE = 0, 1, 2
"""`Activations` and `Epilogue` of native/kernels.h."""

BLOCK_TYPES: Mapping[str, tuple[int, int, int]] = MappingProxyType({
    "q4_0": (2, 32, 18),
    "q4_1": (3, 32, 20),
    "q5_0": (6, 32, 22),
    "q5_1": (7, 32, 24),
    "q8_0": (8, 32, 34),
    "q2_k": (10, 256, 84),
    "q3_k": (11, 256, 110),
    "q4_k": (12, 256, 144),
    "q5_k": (13, 256, 176),
    "q6_k": (14, 256, 210),
    "iq4_nl": (20, 32, 18),
    "iq4_xs": (23, 256, 136),
})
"""Block formats: ggml's number, values and bytes of a block."""

CODE_TABLES: Mapping[str, int] = MappingProxyType({"int4": 1, "int8": 5, "fp4_e2m1": 6, "fp8_e4m3": 7, "fp8_e5m2": 8})
STORED_SCALES: Mapping[str, int] = MappingProxyType({
    "float16": 0,
    "float32": 1,
    "bfloat16": 2,
    "e8m0": 3,
    "fp8_e4m3": 4,
})
"""`CodeTable` and `StoredScale` of native/packed.h, by the names of QuantSpec."""

GROUPED_SCALES = frozenset({"float16", "float32", "bfloat16"})
SERVED_SCALES: Mapping[str, frozenset[str]] = MappingProxyType({
    "int4": GROUPED_SCALES,
    "int8": GROUPED_SCALES,
    "fp8_e4m3": GROUPED_SCALES | {"e8m0"},
    "fp8_e5m2": GROUPED_SCALES | {"e8m0"},
    "fp4_e2m1": frozenset({"e8m0", "fp8_e4m3"}),
})
"""Scale types of each weight type in the canonical packing."""


class NativeLinear:
    """y = x W^T + b for plain weights, ggml blocks and canonical codes (contract `ops`, `LinearKernel`).

    `out` may be float32 while x is bfloat16: the sum is float32 either way. With `int8`, bfloat16 activations are
    rounded to 8 bits where they meet integer codes, 32 to a scale, or all of a token where the weight's spec says so;
    float32 activations never are.
    """

    name = "cpu"
    batch_invariant = True

    def __init__(self, native: Native, int8: bool = False) -> None:
        self._native = native
        self._int8 = int8
        self._linear = native.op("tc_linear")
        self._rows = native.op("tc_rows")

    def supports(self, query: LinearQuery) -> Verdict:
        """Float32 and bfloat16 activations; weights plain or in blocks."""
        reasons = []
        if query.device.partition(":")[0] != "cpu":
            reasons.append(f"device {query.device} is not cpu")
        if query.dtype not in ("float32", "bfloat16"):
            reasons.append(f"activations are {query.dtype}, served are float32 and bfloat16")
        if query.stored not in (None, "float16", "bfloat16"):
            reasons.append(f"rows are {query.stored}, served are float16, bfloat16 and those of the activations' type")
        if query.spec is not None:
            reasons += _refused(query.spec, query.in_features)
        return Verdict.no(*reasons) if reasons else Verdict.yes()

    def pack(self, weight: QuantizedWeight) -> PackedWeight:
        """Copy the weight into panels; the tensors are not needed afterwards."""
        shape = (weight.out_features, weight.in_features)
        if weight.spec is not None and weight.spec.packing == "canonical":
            return self._pack_codes(weight, weight.spec)
        rows = weight.params["weight"]
        if weight.spec is None:
            if rows.stride(-1) != 1:
                rows = rows.contiguous()
            return self._native.pack_plain(STORED_ELEMENTS[rows.dtype], rows.data_ptr(), rows.stride(0), shape)
        number, values, size = BLOCK_TYPES[weight.spec.weight_type]
        expected = (shape[0], shape[1] // values * size)
        if rows.dtype != torch.uint8 or tuple(rows.shape) != expected:
            name, found = weight.spec.weight_type, tuple(rows.shape)
            raise ValueError(f"{name} rows are {rows.dtype} {found}, expected {expected}")
        rows = rows.contiguous()
        return self._native.pack_blocks(number, rows.data_ptr(), rows.stride(0), shape)

    def _pack_codes(self, weight: QuantizedWeight, spec: QuantSpec) -> PackedWeight:
        shape = (weight.out_features, weight.in_features)
        params = {name: tensor.contiguous() for name, tensor in weight.params.items()}
        wanted = canonical_params(LayerSpec("", *shape), spec)
        stored = {name: (tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in params.items()}
        expected = {name: (param.shape, param.dtype) for name, param in wanted.items()}
        if stored != expected:
            raise ValueError(f"{spec.weight_type} weight holds {stored}, expected {expected}")
        at = {name: tensor.data_ptr() for name, tensor in params.items()}
        strides = [params[name].stride(0) if name in params else 0 for name in ("codes", "scale", "zero")]
        pointers = [at.get(name, 0) for name in ("codes", "scale", "zero", "global_scale", "order")]
        per_token = (spec.activation_type, spec.activation_granularity) == ("int8", "token")
        kinds = CODE_TABLES[spec.weight_type], STORED_SCALES[spec.scale_type], int(per_token)
        return self._native.pack_codes([*pointers, *strides, *shape, max(spec.group_size, 0), *kinds], shape)

    @cached_property
    def layout(self) -> str:
        """Whose bytes packed weights are: this very library's, at its instruction set."""
        built = hashlib.sha256(library_path().read_bytes()).hexdigest()
        return f"cpu {self._native.level()} {built[:16]}"

    def store(self, packed: PackedWeight) -> tuple[bytes, memoryview]:
        return self._native.packed_header(packed), self._native.packed_memory(packed)

    def restore(self, header: bytes) -> tuple[PackedWeight, memoryview]:
        packed = self._native.place(header)
        return packed, self._native.packed_memory(packed)

    def apply(self, call: LinearCall) -> None:
        x, out, bias = call.x, call.out, call.bias
        packed: PackedWeight = call.packed
        activations = INT8 if self._int8 and x.dtype == torch.bfloat16 else EXACT
        if bias is None:
            bias_at, bias_element = 0, 0
        else:
            bias_at, bias_element = bias.data_ptr(), ELEMENTS[bias.dtype]
        self._linear(
            packed.handle, x.data_ptr(), x.stride(0), out.data_ptr(), out.stride(0), x.shape[0],
            bias_at, ELEMENTS[x.dtype], ELEMENTS[out.dtype], bias_element, activations, STORE, 0, 0, 0,
        )  # fmt: skip

    def rows(self, packed: PackedWeight, ids: Tensor, out: Tensor) -> None:
        self._rows(packed.handle, ids.data_ptr(), out.data_ptr(), out.stride(0), ids.shape[0], ELEMENTS[out.dtype])


def _refused(spec: QuantSpec, in_features: int) -> list[str]:
    """Why a quantized weight is not served; nothing if it is."""
    name = spec.weight_type
    if spec.packing == "ggml":
        block = BLOCK_TYPES.get(name)
        if block is None:
            return [f"weights are {name} in ggml packing"]
        return [f"{in_features} values are no whole number of {name} blocks"] if in_features % block[1] else []
    if spec.packing != "canonical" or name not in SERVED_SCALES:
        return [f"weights are {name} in {spec.packing} packing"]
    reasons, scales = [], SERVED_SCALES[name]
    if spec.scale_type not in scales:
        reasons.append(f"scales of {name} weights are {spec.scale_type}, served are {', '.join(sorted(scales))}")
    if spec.zero_points and name not in ("int4", "int8"):
        reasons.append(f"{name} weights have zero points")
    if spec.scale_type == "fp8_e4m3":
        if spec.group_size != 16:
            reasons.append(f"groups under a global scale are of {spec.group_size} values, served are 16")
    elif spec.group_size > 0 and spec.group_size % 32:
        reasons.append(f"groups are of {spec.group_size} values, served are multiples of 32 and whole rows")
    return reasons
