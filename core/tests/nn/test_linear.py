"""Fused and quantized linears: the same numbers as each part multiplied on its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from turret.contracts import LinearCall, LinearKernel, LinearQuery, QuantizedWeight, QuantMethod, QuantSpec, Verdict
from turret.errors import LoadError
from turret.nn import LayerFactory, Linear, OpTable, Part, Quantization
from turret.nn.linear_kernels import DequantKernel, PlainKernel

PARTS = [Part("m.q", 8), Part("m.k", 4), Part("m.v", 4)]
K = 12


def made(
    specs: dict[str, QuantSpec], method: QuantMethod, dtype: str = "float32"
) -> tuple[Linear, torch.Tensor, torch.Tensor]:
    """A loaded fused layer, and the whole weight and bias it stands for."""
    quantization = Quantization(method, specs) if specs else None
    factory = LayerFactory(dtype, "cpu", 16, OpTable.resolve(), quantization)
    layer = factory.linear("qkv", PARTS, K, bias=True)
    torch.manual_seed(0)
    weights, biases = [], []
    for shard, part in enumerate(PARTS):
        spec = specs.get(part.name)
        if spec is None:
            weight = torch.randn(part.out_features, K)
            factory.load("qkv", shard, "weight", weight)
        else:
            codes = torch.randint(-99, 99, (part.out_features, K), dtype=torch.int8)
            scale = torch.rand(part.out_features)
            weight = codes.float() * scale[:, None]
            factory.load("qkv", shard, "codes", codes.t().contiguous() if spec.packing == "columns" else codes)
            factory.load("qkv", shard, "scale", scale)
        bias = torch.randn(part.out_features)
        factory.load("qkv", shard, "bias", bias)
        weights.append(weight)
        biases.append(bias)
    factory.finish()
    return layer, torch.cat(weights), torch.cat(biases)


@pytest.mark.parametrize(
    ("packings", "kernels"),
    [
        (["plain", "plain", "plain"], ["reference"]),
        (["rows", "rows", "rows"], ["dequantize"]),
        (["rows", "rows", "plain"], ["dequantize", "reference"]),
        (["columns", "rows", "plain"], ["dequantize", "dequantize", "reference"]),
        (["columns", "columns", "columns"], ["dequantize", "dequantize", "dequantize"]),
    ],
)
def test_parts_fuse_where_they_can_and_agree_where_they_cannot(
    packings: list[str], kernels: list[str], int8: QuantMethod, rows_spec: QuantSpec, columns_spec: QuantSpec
) -> None:
    known = {"rows": rows_spec, "columns": columns_spec}
    specs = {part.name: known[p] for part, p in zip(PARTS, packings, strict=True) if p != "plain"}
    layer, weight, bias = made(specs, int8)
    assert layer.kernel_names == kernels
    x, out = torch.randn(5, K), torch.full((5, 16), float("nan"))
    layer(out, x)
    torch.testing.assert_close(out, x @ weight.t() + bias, rtol=1e-5, atol=1e-4)


def test_output_may_be_a_column_slice(int8: QuantMethod) -> None:
    layer, weight, bias = made({}, int8)
    wide, x = torch.zeros(3, 20), torch.randn(3, K)
    layer(wide[:, 2:18], x)
    torch.testing.assert_close(wide[:, 2:18], x @ weight.t() + bias)
    assert not wide[:, :2].any() and not wide[:, 18:].any()


def test_bfloat16_rounds_weights_once(int8: QuantMethod) -> None:
    layer, weight, bias = made({}, int8, "bfloat16")
    x, out = torch.randn(3, K).bfloat16(), torch.empty(3, 16, dtype=torch.bfloat16)
    layer(out, x)
    torch.testing.assert_close(out.float(), x.float() @ weight.t() + bias, rtol=2e-2, atol=5e-2)


def test_dequantizing_in_chunks_changes_nothing(
    int8: QuantMethod, rows_spec: QuantSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, scale = torch.randint(-99, 99, (10, K), dtype=torch.int8), torch.rand(10)
    kernel = DequantKernel(int8)
    packed = kernel.pack(QuantizedWeight(rows_spec, 10, K, {"codes": codes, "scale": scale}))
    x, out = torch.randn(2, K), torch.empty(2, 10)
    monkeypatch.setattr("turret.nn.linear_kernels.CHUNK_VALUES", 3 * K)
    kernel.apply(LinearCall(out, x, packed))
    torch.testing.assert_close(out, x @ (codes.float() * scale[:, None]).t(), rtol=1e-5, atol=1e-4)
    rows = torch.empty(2, K)
    kernel.rows(packed, torch.tensor([7, 0]), rows)
    torch.testing.assert_close(rows, codes[[7, 0]].float() * scale[[7, 0], None])


def test_a_quantized_embedding_is_looked_up_packed(int8: QuantMethod, rows_spec: QuantSpec) -> None:
    factory = LayerFactory("float32", "cpu", 16, OpTable.resolve(), Quantization(int8, {"embed": rows_spec}))
    embedding = factory.embedding("embed", Part("embed", 10), K)
    codes, scale = torch.randint(-99, 99, (10, K), dtype=torch.int8), torch.rand(10)
    factory.load("embed", None, "codes", codes)
    factory.load("embed", None, "scale", scale)
    assert embedding.linear is not None and embedding.weight is None
    out = torch.empty(2, K)
    embedding.linear.rows(out, torch.tensor([3, 9]))
    torch.testing.assert_close(out, codes[[3, 9]].float() * scale[[3, 9], None])


class Picky:
    """A kernel that takes weights of one width and remembers what it packed."""

    name = "picky"

    def __init__(self, width: int) -> None:
        self._width = width

    def supports(self, query: LinearQuery) -> Verdict:
        return Verdict.yes() if query.in_features == self._width else Verdict.no(f"K is not {self._width}")

    def pack(self, weight: QuantizedWeight) -> torch.Tensor:
        return weight.params["weight"].t().contiguous()

    def apply(self, call: LinearCall) -> None:
        torch.mm(call.x, call.packed, out=call.out)

    def rows(self, packed: torch.Tensor, ids: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(packed.t()[ids])


class PickyProvider:
    api = "1.0"
    name = "picky"

    def ops(self) -> dict[str, object]:
        return {}

    def linear_kernels(self) -> list[Picky]:
        return [Picky(K)]


def test_a_providers_kernel_wins_where_it_supports_the_weight() -> None:
    factory = LayerFactory("float32", "cpu", 16, OpTable.resolve([PickyProvider()]))  # type: ignore[list-item]
    fits, odd = factory.linear("a", [Part("a", 8)], K), factory.linear("b", [Part("b", 8)], K + 1)
    weight = torch.randn(8, K)
    factory.load("a", None, "weight", weight)
    factory.load("b", None, "weight", torch.randn(8, K + 1))
    assert (fits.kernel_names, odd.kernel_names) == (["picky"], ["reference"])
    x, out = torch.randn(3, K), torch.empty(3, 8)
    fits(out, x)
    torch.testing.assert_close(out, x @ weight.t())


def test_a_spec_without_its_method_has_no_kernel(rows_spec: QuantSpec, int8: QuantMethod) -> None:
    factory = LayerFactory("float32", "cpu", 16, OpTable.resolve(), Quantization(int8, {}))
    layer = factory.linear("a", [Part("a", 8)], K)
    packer = layer._packer
    with pytest.raises(LoadError, match="no linear kernel takes"):
        object.__setattr__(packer, "kernels", packer.kernels[:1])
        packer.kernel(QuantizedWeight(rows_spec, 8, K, {}), "a")


class KeepsHalves(PlainKernel):
    """Takes float16 rows beside any activations."""

    name = "keeps halves"

    def supports(self, query: LinearQuery) -> Verdict:
        return Verdict.yes() if query.stored == "float16" else Verdict.no("not float16")

    def apply(self, call: LinearCall) -> None:
        call.out.copy_(call.x @ call.packed.to(call.x.dtype).t())


class HalvesProvider:
    """Offers that kernel."""

    api = "1.0"
    name = "halves"

    def ops(self) -> dict[str, Callable[..., None]]:
        return {}

    def linear_kernels(self) -> list[LinearKernel]:
        return [KeepsHalves()]


@pytest.mark.parametrize(
    ("stored", "providers", "kernels"),
    [
        (["float16", "float16"], [HalvesProvider()], ["keeps halves"]),
        (["float16", "bfloat16"], [HalvesProvider()], ["reference"]),
        (["float16", "float16"], [], ["reference"]),
        (["bfloat16", "bfloat16"], [HalvesProvider()], ["reference"]),
    ],
)
def test_rows_of_16_bits_stay_as_stored_where_a_kernel_takes_them(
    stored: list[str], providers: list[HalvesProvider], kernels: list[str]
) -> None:
    factory = LayerFactory("float32", "cpu", 16, OpTable.resolve(providers))
    layer = factory.linear("gate_up", [Part("m.a", 8), Part("m.b", 4)], K)
    parts = [torch.randn(n, K).to(getattr(torch, dtype)) for n, dtype in zip((8, 4), stored, strict=True)]
    for shard, part in enumerate(parts):
        factory.load("gate_up", shard, "weight", part.clone())
    factory.finish()
    assert layer.kernel_names == kernels
    x, out = torch.randn(3, K), torch.empty(3, 12)
    layer(out, x)
    torch.testing.assert_close(out, x @ torch.cat([part.float() for part in parts]).t())
