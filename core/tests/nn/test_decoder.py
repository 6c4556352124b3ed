"""The decoder as a whole: how many ops it calls, where it writes, what its multipliers mean, where weights go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch

from turret.contracts import OP_NAMES, LinearCall, LinearQuery, ModelContext, QuantizedWeight, Verdict
from turret.errors import LoadError
from turret.nn import (
    AttentionSpec,
    BlockSpec,
    Decoder,
    DecoderSpec,
    LayerFactory,
    MLPSpec,
    NormSpec,
    OpTable,
    Placing,
    QKNorm,
    RopeSpec,
    WeightNames,
    decoder_weights,
)
from turret.nn.linear_kernels import PlainKernel
from turret.nn.ops import REFERENCE_OPS
from turret.testing.model_driver import ModelDriver
from turret_attention_torch.backend import TorchAttention

ATTENTION = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=8, scale=8**-0.5, rope=RopeSpec(8))
PLAIN = DecoderSpec(vocab_size=40, hidden_size=32, blocks=(BlockSpec(ATTENTION, MLPSpec(48)),) * 3, tied=True)


class CountingKernel(PlainKernel):
    """The reference, counted."""

    def __init__(self, calls: Counter[str]) -> None:
        self._calls = calls

    def supports(self, query: LinearQuery) -> Verdict:
        return Verdict.yes()

    def pack(self, weight: QuantizedWeight) -> torch.Tensor:
        return weight.params["weight"]

    def apply(self, call: LinearCall) -> None:
        self._calls["linear"] += 1
        super().apply(call)


class CountingProvider:
    """Every op of the reference, counted."""

    api = "1.0"
    name = "counting"

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def ops(self) -> Mapping[str, Callable[..., None]]:
        def counted(name: str) -> Callable[..., None]:
            def call(*args: object) -> None:
                self.calls[name] += 1
                REFERENCE_OPS[name](*args)

            return call

        return {name: counted(name) for name in OP_NAMES}

    def linear_kernels(self) -> list[CountingKernel]:
        return [CountingKernel(self.calls)]


class CountingAttention(TorchAttention):
    def __init__(self, calls: Counter[str]) -> None:
        self._calls = calls

    def run(self, call: object) -> None:
        self._calls["attention"] += 1
        super().run(call)  # type: ignore[arg-type]


def driver(spec: DecoderSpec, table: OpTable | None = None, backend: TorchAttention | None = None) -> ModelDriver:
    factory = LayerFactory("float32", "cpu", 64, table or OpTable.resolve())
    model = Decoder(spec, ModelContext("float32", "cpu", 64, factory))
    factory.fill_random(3)
    factory.finish()
    return ModelDriver(model, factory, backend or TorchAttention())


def blocks(placing: Placing, attention: AttentionSpec = ATTENTION, mlp: MLPSpec | None = None) -> tuple[BlockSpec, ...]:
    return (BlockSpec(attention, mlp or MLPSpec(48), placing),) * 3


@pytest.mark.parametrize(
    ("spec", "per_layer"),
    [
        (PLAIN, 9),
        (replace(PLAIN, blocks=blocks(Placing.PRE, replace(ATTENTION, qk_norm=QKNorm.HEAD, qkv_bias=True))), 11),
        (replace(PLAIN, blocks=blocks(Placing.SANDWICH)), 11),
        (replace(PLAIN, blocks=blocks(Placing.POST)), 13),
        (replace(PLAIN, blocks=blocks(Placing.PARALLEL)), 9),
        (replace(PLAIN, blocks=blocks(Placing.PRE, replace(ATTENTION, rope=None))), 8),
        (replace(PLAIN, residual_multiplier=0.3, embedding_scale=2.0), 9),
    ],
)
def test_calls_per_layer(spec: DecoderSpec, per_layer: int) -> None:
    provider = CountingProvider()
    runner = driver(spec, OpTable.resolve([provider]), CountingAttention(provider.calls))
    runner.step({"a": [1, 2, 3]})
    provider.calls.clear()
    runner.step({"a": [4]})
    around = 2 + (spec.embedding_scale != 1.0 or spec.residual_multiplier != 1.0)  # final norm, head, embedding scale
    layers = provider.calls.total() - around
    # A post-norm decoder has nothing to add before its first layer.
    assert layers == per_layer * 3 - (spec.blocks[0].placing is Placing.POST), provider.calls


def test_a_forward_writes_to_the_same_addresses_each_time() -> None:
    runner = driver(PLAIN)
    scratch = runner._ctx.scratch
    runner.step({"a": [1, 2, 3], "b": [4, 5]})
    addresses = {key: buffer.data_ptr() for key, buffer in scratch.buffers.items()}
    runner.step({"a": [6], "b": [7]})
    runner.step({"c": list(range(30))})
    assert {key: buffer.data_ptr() for key, buffer in scratch.buffers.items()} == addresses
    assert len(addresses) == 8, "residual, normed, branch, qkv, attended, MLP up and active, logits"


def test_a_step_beyond_the_scratch_is_refused() -> None:
    runner = driver(PLAIN)
    with pytest.raises(ValueError, match="scratch 'residual' holds"):
        runner.step({"a": [1] * 257})


def test_a_residual_multiplier_scales_each_branch() -> None:
    """Against the plain decoder with output projections scaled by hand."""
    scaled = replace(PLAIN, residual_multiplier=0.25, embedding_scale=3.0, norm=NormSpec(eps=1e-2))
    plain = replace(scaled, residual_multiplier=1.0)
    results = []
    for spec, factor in ((scaled, 1.0), (plain, 0.25)):
        factory = LayerFactory("float32", "cpu", 64, OpTable.resolve())
        model = Decoder(spec, ModelContext("float32", "cpu", 64, factory))
        for parameter in list(factory.parameters()):
            torch.manual_seed(len(parameter.name))
            tensor = torch.randn(parameter.spec.shape) * 0.3
            if parameter.target.endswith((".o", ".down")):
                tensor *= factor
            factory.load(parameter.target, parameter.shard, parameter.param, tensor)
        results.append(ModelDriver(model, factory, TorchAttention()).step({"a": [1, 2, 3, 4]})["a"])
    torch.testing.assert_close(results[0], results[1], atol=1e-4, rtol=1e-4)


def test_a_residual_multiplier_needs_norms_in_front() -> None:
    spec = replace(PLAIN, residual_multiplier=0.5, blocks=blocks(Placing.POST))
    with pytest.raises(LoadError, match="residual multiplier needs blocks that are pre-norm or parallel"):
        driver(spec)


def test_logits_are_scaled_and_capped_in_float32() -> None:
    plain = driver(PLAIN).step({"a": [1, 2]})["a"]
    capped = driver(replace(PLAIN, logits_scale=3.0, logits_softcap=2.0)).step({"a": [1, 2]})["a"]
    torch.testing.assert_close(capped, 2.0 * torch.tanh(plain * 3.0 / 2.0))


def test_weight_rule_covers_every_parameter_and_nothing_else() -> None:
    names = WeightNames(qkv="attn.wqkv", gate_up="mlp.gate_up", layer="net.{i}.", mlp_norm="mlp.norm")
    attention = replace(ATTENTION, qk_norm=QKNorm.WHOLE, sinks=True)
    spec = replace(PLAIN, blocks=blocks(Placing.SANDWICH, attention), names=names)
    factory = LayerFactory("float32", "cpu", 64, OpTable.resolve())
    Decoder(spec, ModelContext("float32", "cpu", 64, factory))
    rule = decoder_weights(spec)
    for parameter in factory.parameters():
        placement = rule(parameter.name)
        assert placement is not None and placement.target == f"{parameter.target}.{parameter.param}", parameter.name
    skipped = rule("net.0.rotary_emb.inv_freq"), rule("lm_head.weight")
    assert all(placement is not None and placement.skip for placement in skipped)
    assert rule("net.7.attn.wqkv.weight") is None
    assert rule("net.0.attn.q_proj.weight") is None


def test_names_that_clash_are_a_bug_of_the_family() -> None:
    with pytest.raises(ValueError, match="WeightNames clash"):
        decoder_weights(replace(PLAIN, blocks=blocks(Placing.SANDWICH)))


def test_unknown_activations_are_named() -> None:
    with pytest.raises(LoadError, match="no gated op for activation 'relu2'"):
        driver(replace(PLAIN, blocks=blocks(Placing.PRE, mlp=MLPSpec(48, "relu2"))))
    with pytest.raises(LoadError, match="unknown activation 'mish'"):
        driver(replace(PLAIN, blocks=blocks(Placing.PRE, mlp=MLPSpec(48, "mish", gated=False))))
