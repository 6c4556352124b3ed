"""Receiving weights: any order, packed once, sources let go, and every fault named."""

from __future__ import annotations

import weakref

import pytest
import torch

from turret.contracts import Placement, QuantMethod, QuantSpec
from turret.errors import LoadError
from turret.nn import LayerFactory, NormSpec, OpTable, Part, Quantization


def factory_with_layers() -> LayerFactory:
    factory = LayerFactory("float32", "cpu", 16, OpTable.resolve())
    factory.linear("up", [Part("mlp.gate", 6), Part("mlp.up", 6)], 4)
    factory.norm("norm", "model.norm", 4, NormSpec(kind="layer", bias=True))
    return factory


def fill(factory: LayerFactory) -> None:
    factory.load("norm", None, "bias", torch.zeros(4))
    factory.load("up", 1, "weight", torch.ones(6, 4))
    factory.load("norm", None, "weight", torch.ones(4))
    factory.load("up", 0, "weight", torch.ones(6, 4))


def test_any_order_completes_and_counts_bytes() -> None:
    factory = factory_with_layers()
    assert factory.progress == (0, 2)
    fill(factory)
    seen: list[tuple[int, int]] = []
    factory.finish(lambda done, total: seen.append((done, total)))
    assert factory.progress == (2, 2) and seen == [(2, 2)]
    assert factory.weight_bytes == (12 * 4 + 4 + 4) * 4


def test_sources_of_a_fused_layer_are_let_go() -> None:
    factory = factory_with_layers()
    source = torch.ones(6, 4)
    gone = weakref.ref(source)
    factory.load("up", 0, "weight", source)
    factory.load("up", 1, "weight", torch.ones(6, 4))
    del source
    assert gone() is None


def test_missing_tensors_are_named_as_the_checkpoint_calls_them() -> None:
    factory = factory_with_layers()
    factory.load("up", 1, "weight", torch.ones(6, 4))
    with pytest.raises(LoadError, match=r"lacks 3 .*mlp\.gate\.weight, model\.norm\.weight, model\.norm\.bias"):
        factory.finish()


@pytest.mark.parametrize(
    ("target", "shard", "param", "tensor", "message"),
    [
        ("up", 0, "weight", torch.ones(4, 6), r"mlp\.gate\.weight: expected shape \(6, 4\), the file has \(4, 6\)"),
        ("up", 0, "weight", torch.ones(6, 4, dtype=torch.int8), "expected dtype floating, the file has int8"),
        ("up", 0, "weight", torch.ones(6, 4).to(torch.float8_e4m3fn), "expected dtype floating, the file has float8"),
        ("up", 0, "scales", torch.ones(6), r"no parameter 'scales'; it expects mlp\.gate\.weight"),
        ("up", 2, "weight", torch.ones(6, 4), "expects no such shard"),
        ("up", 0, "bias", torch.ones(6), "no parameter 'bias'"),
        ("down", None, "weight", torch.ones(6, 4), "the model has no layer 'down'"),
    ],
)
def test_what_does_not_fit_is_refused(
    target: str, shard: int | None, param: str, tensor: torch.Tensor, message: str
) -> None:
    with pytest.raises(LoadError, match=message):
        factory_with_layers().load(target, shard, param, tensor)


def test_a_tensor_that_comes_twice_is_refused() -> None:
    factory = factory_with_layers()
    factory.load("up", 0, "weight", torch.ones(6, 4))
    with pytest.raises(LoadError, match="arrived twice"):
        factory.load("up", 0, "weight", torch.ones(6, 4))


def test_a_zero_bias_nobody_wants_is_ignored() -> None:
    factory = factory_with_layers()
    factory.load("up", 0, "bias", torch.zeros(6))
    fill(factory)
    factory.finish()


def test_quantized_parameters_keep_their_exact_dtype(int8: QuantMethod, rows_spec: QuantSpec) -> None:
    factory = LayerFactory("float32", "cpu", 16, OpTable.resolve(), Quantization(int8, {"a": rows_spec}))
    factory.linear("a", [Part("a", 6)], 4)
    with pytest.raises(LoadError, match=r"a\.codes: expected dtype int8, the file has int16"):
        factory.load("a", None, "codes", torch.ones(6, 4, dtype=torch.int16))


def test_placements_skip_transform_and_address() -> None:
    factory = factory_with_layers()
    factory.place(Placement(skip=True), torch.ones(1))
    factory.place(Placement("up.weight", 0, transform=lambda t: t.t()), torch.ones(4, 6))
    assert next(factory.parameters()).name == "mlp.gate.weight"
    with pytest.raises(LoadError, match="arrived twice"):
        factory.place(Placement("up.weight", 0), torch.ones(6, 4))


def test_made_up_weights_depend_on_seed_and_name_only() -> None:
    def weights(seed: int, first: str) -> torch.Tensor:
        factory = LayerFactory("float32", "cpu", 16, OpTable.resolve())
        order = [first, "b" if first == "a" else "a"]
        layers = {name: factory.linear(name, [Part(name, 8)], 8) for name in order}
        factory.fill_random(seed)
        factory.finish()
        out = torch.empty(8, 8)
        layers["a"](out, torch.eye(8))
        return out

    assert torch.equal(weights(1, "a"), weights(1, "b"))
    assert not torch.equal(weights(1, "a"), weights(2, "a"))
    assert 0.1 < weights(1, "a").std() < 1.0


def test_two_layers_of_one_name_are_a_bug() -> None:
    factory = factory_with_layers()
    with pytest.raises(ValueError, match="two layers are called 'norm'"):
        factory.norm("norm", "other", 4, NormSpec())
