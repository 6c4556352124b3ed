"""Shared by the tests of nn: a real quantization method that is small enough to read, and one thread."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from turret.contracts import LayerSpec, ParamSpec, QuantContext, QuantizedWeight, QuantSpec

ROWS = QuantSpec("int8", 8, 0, packing="rows")
COLUMNS = QuantSpec("int8", 8, 0, packing="columns")


class Int8Method:
    """Int8 weights with a scale per output row; stored [N, K], or transposed [K, N] (`columns`), which cannot be cut
    by rows along the first dimension."""

    api = "1.0"
    name = "int8"

    def parse(self, context: QuantContext) -> Mapping[str, QuantSpec]:
        return {}

    def params(self, layer: LayerSpec, spec: QuantSpec) -> Mapping[str, ParamSpec]:
        shape = (layer.out_features, layer.in_features)
        if spec == COLUMNS:
            shape = (shape[1], shape[0])
        return {"codes": ParamSpec(shape, "int8"), "scale": ParamSpec((layer.out_features,), "float32")}

    def canonicalize(self, weight: QuantizedWeight) -> QuantizedWeight:
        return weight

    def dequantize(self, weight: QuantizedWeight) -> torch.Tensor:
        codes = weight.params["codes"].float()
        if weight.spec == COLUMNS:
            codes = codes.t()
        return codes * weight.params["scale"][:, None]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def int8() -> Int8Method:
    return Int8Method()


@pytest.fixture
def rows_spec() -> QuantSpec:
    return ROWS


@pytest.fixture
def columns_spec() -> QuantSpec:
    return COLUMNS
