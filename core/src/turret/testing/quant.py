"""Numeric cases of quantization methods: stored layers against the weights they stand for.

Owns the comparison. Knows no format: samples come from the plugin.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from turret.contracts import QuantizedWeight
from turret.nn import LayerFactory, OpTable, Part, Quantization
from turret.testing.cases import Case, Subject
from turret.testing.samples import QuantSample

__all__ = ["build"]

EMPTY = """
import sys
from turret.contracts import QuantContext
from turret.plugins import PluginHost, Policy
from turret.plugins.metadata import scan_distributions
host = PluginHost.discover(Policy(enable=({dist!r},)), scan=scan_distributions([{dist!r}]))
method = host.load(host.registry.find("quant", {name!r})[0])
found = method.parse(QuantContext({{}}, {{}}))
print(len(found), "torch" in sys.modules)
"""


def build(subject: Subject) -> Iterator[Case]:
    yield subject.case("contract", "parse_needs_no_torch", _parse_empty, subject)
    yield subject.case("numeric", "parse_and_params", _parse, subject)
    yield subject.case("numeric", "dequantize", _dequantize, subject)
    yield subject.case("numeric", "linear", _linear, subject)
    yield subject.case("numeric", "embedding", _embedding, subject)


def _parse_empty(subject: Subject) -> None:
    """A checkpoint without tensors has no quantized layers, and finding that out takes no torch."""
    code = EMPTY.format(dist=subject.candidate.distribution, name=subject.candidate.name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    count, torch_loaded = done.stdout.split()
    assert (count, torch_loaded) == ("0", "False"), f"{count} layers in nothing; torch loaded: {torch_loaded}"


def _parse(subject: Subject) -> None:
    """`parse` finds the layer, and `params` describes exactly what is stored for it."""
    method = subject.load()
    for sample in subject.samples(QuantSample):
        specs = method.parse(sample.context)
        assert sample.layer.name in specs, f"{sample.name}: parse() does not find {sample.layer.name}"
        told = method.params(sample.layer, specs[sample.layer.name])
        assert set(told) == set(sample.params), f"{sample.name}: params() names {sorted(told)}"
        for name, tensor in sample.params.items():
            spec = told[name]
            stored = (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            assert (tuple(spec.shape), spec.dtype) == stored, f"{sample.name}: {name} is {stored}, params() says {spec}"


def _held(method: Any, sample: QuantSample) -> QuantizedWeight:
    """The sample's weight as it is held after loading."""
    spec = method.parse(sample.context)[sample.layer.name]
    params = {name: tensor.clone() for name, tensor in sample.params.items()}
    layer = sample.layer
    held: QuantizedWeight = method.canonicalize(QuantizedWeight(spec, layer.out_features, layer.in_features, params))
    return held


def _near(got: Tensor, sample: QuantSample) -> bool:
    if sample.rtol == 0:
        return torch.equal(got, sample.expected)
    scale = float(sample.expected.abs().max())
    return bool(torch.allclose(got, sample.expected, rtol=sample.rtol, atol=sample.rtol * scale))


def _dequantize(subject: Subject) -> None:
    method = subject.load()
    for sample in subject.samples(QuantSample):
        held = _held(method, sample)
        got = method.dequantize(held)
        assert got.dtype == torch.float32, f"{sample.name}: dequantize gives {got.dtype}"
        assert got.shape == (sample.layer.out_features, sample.layer.in_features), f"{sample.name}: {tuple(got.shape)}"
        assert _near(got, sample), f"{sample.name}: off by {float((got - sample.expected).abs().max()):.3g}"
        assert torch.equal(got, method.dequantize(held)), f"{sample.name}: dequantizing twice differs"


def _factory(method: Any, sample: QuantSample) -> LayerFactory:
    return LayerFactory("float32", "cpu", 16, OpTable.resolve(), Quantization(method, method.parse(sample.context)))


def _linear(subject: Subject) -> None:
    """Through `turret.nn`, as a model loads and runs it."""
    method = subject.load()
    for sample in subject.samples(QuantSample):
        factory, layer = _factory(method, sample), sample.layer
        linear = factory.linear("probe", [Part(layer.name, layer.out_features)], layer.in_features)
        for name, tensor in sample.params.items():
            factory.load("probe", None, name, tensor.clone())
        factory.finish()
        x = torch.randn(5, layer.in_features, generator=torch.Generator().manual_seed(2))
        out = torch.empty(5, layer.out_features)
        linear(out, x)
        expected = x.double() @ sample.expected.double().T
        limit = 1e-4 * float(expected.abs().max())
        assert float((out.double() - expected).abs().max()) <= limit, f"{sample.name}: the linear layer is off"


def _embedding(subject: Subject) -> None:
    """A quantized embedding gives rows of the weight."""
    method = subject.load()
    for sample in subject.samples(QuantSample):
        factory, layer = _factory(method, sample), sample.layer
        embedding = factory.embedding("probe", Part(layer.name, layer.out_features), layer.in_features, tied=True)
        for name, tensor in sample.params.items():
            factory.load("probe", None, name, tensor.clone())
        factory.finish()
        ids = torch.tensor([0, layer.out_features - 1, 3])
        out = torch.empty(3, layer.in_features)
        assert embedding.linear is not None
        embedding.linear.rows(out, ids)
        assert torch.allclose(out, sample.expected[ids], rtol=1e-4, atol=1e-5), f"{sample.name}: rows are off"
