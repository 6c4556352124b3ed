"""Recorded forwards: the bits of the same model run op by op, and refusal of what a replay would not repeat."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from turret.contracts import ModelContext, StepBindings
from turret.errors import EngineError, NotSupportedError
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
)
from turret.testing.model_driver import DriverSettings, ModelDriver
from turret_platform_cpu.attention import CPUAttention
from turret_platform_cpu.native import BadArgumentError, Native
from turret_platform_cpu.ops import CPUOps
from turret_platform_cpu.recorder import CPUGraphs

ATTENTION = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=32, scale=32**-0.5, rope=RopeSpec(32))
WINDOWED = replace(ATTENTION, window=24, softcap=20.0, rope=None)
MLP = MLPSpec(96)
PLAIN = DecoderSpec(128, 64, (BlockSpec(ATTENTION, MLP),) * 3, tied=True)
LAYER_NORM = NormSpec("layer", bias=True)
SPECS = {
    "plain": PLAIN,
    "windows, softcap, sandwich": replace(
        PLAIN, blocks=(BlockSpec(ATTENTION, MLP, Placing.SANDWICH), BlockSpec(WINDOWED, MLP, Placing.SANDWICH)) * 2,
        embedding_scale=8.0, logits_softcap=10.0),
    "post": replace(PLAIN, blocks=(BlockSpec(ATTENTION, MLP, Placing.POST),) * 2, tied=False, embedding_scale=3.0),
    "parallel, layer norm, biases": replace(
        PLAIN, norm=LAYER_NORM, tied=False,
        blocks=(BlockSpec(replace(ATTENTION, qkv_bias=True), MLPSpec(96, "gelu", False, True), Placing.PARALLEL),) * 2),
    "relu2, norms of heads": replace(
        PLAIN, blocks=(BlockSpec(replace(ATTENTION, qk_norm=QKNorm.HEAD), MLPSpec(96, "relu2", False)),) * 2),
    "wide": DecoderSpec(
        512, 1024, (BlockSpec(replace(ATTENTION, num_heads=8, head_dim=64), MLPSpec(1536)),), tied=True),
}  # fmt: skip
Steps = Callable[[int], StepBindings]
TOKENS = [(7 * i + i // 5) % 128 for i in range(150)]


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def make(spec: DecoderSpec, dtype: str, native: Native) -> ModelDriver:
    factory = LayerFactory(dtype, "cpu", 256, OpTable.resolve([CPUOps(native)]))
    model = Decoder(spec, ModelContext(dtype, "cpu", 256, factory))
    factory.fill_random(3)
    factory.finish()
    return ModelDriver(model, factory, CPUAttention(native), DriverSettings(16, 64, 256, dtype))


def several_steps(driver: ModelDriver) -> torch.Tensor:
    """Logits of chunks, mixed steps and single tokens."""
    steps = [{"a": TOKENS[:70]}, {"a": TOKENS[70:71], "b": TOKENS[:33]}, {"a": TOKENS[71:80], "b": TOKENS[33:34]}]
    steps += [{"a": [t], "b": [t + 1], "c": [t + 2]} for t in TOKENS[80:84]] + [{"c": TOKENS[:55]}]
    found = [rows for step in steps for rows in driver.step(step).values()]
    for name in "abc":
        driver.drop(name)
    return torch.cat(found)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", SPECS)
def test_a_replay_has_the_bits_of_the_forward(
    name: str, dtype: str, level: str, native: Native, threads: Callable[[int], None]
) -> None:
    driver = make(SPECS[name], dtype, native)
    expected = several_steps(driver)
    assert bool(expected.isfinite().all())
    driver.record_with(CPUGraphs(native))
    for count in (2, 3, 1):
        threads(count)
        assert torch.equal(several_steps(driver), expected), f"{count} threads"


def test_many_replays_in_a_row(native: Native, threads: Callable[[int], None]) -> None:
    """Phases of the pool are used over and over; a thread that lags must not disturb them."""
    threads(4)
    driver = make(SPECS["wide"], "bfloat16", native)
    driver.step({"a": TOKENS[:40]})
    driver.record_with(CPUGraphs(native))
    first = None
    for _ in range(60):
        driver.drop("a")
        rows = driver.step({"a": TOKENS[:40]})["a"]
        first = rows if first is None else first
        assert torch.equal(rows, first)


def test_what_torch_computes_is_noticed(native: Native, bindings: Steps) -> None:
    x, out = torch.randn(3, 8), torch.empty(3, 8)
    ops = CPUOps(native)

    def forward() -> None:
        ops.copy(out[:3], x.view(3, 8))
        torch.mul(x, 2.0, out=out)

    with pytest.raises(NotSupportedError, match=r"on torch: torch\.mul"):
        CPUGraphs(native).record(forward, bindings(3))


def test_ops_that_a_step_does_not_explain_are_noticed(native: Native, bindings: Steps) -> None:
    ops, table, out = CPUOps(native), torch.randn(9, 8), torch.empty(3, 8)
    step, others = bindings(3), torch.arange(3)
    with pytest.raises(NotSupportedError, match="other ids than the step's"):
        CPUGraphs(native).record(lambda: ops.embedding(out, others, table, 1.0), step)
    with pytest.raises(NotSupportedError, match="no multiple of the step's tokens"):
        CPUGraphs(native).record(lambda: ops.scale(out[:2], 2.0), step)
    with pytest.raises(NotSupportedError, match="one token"):
        CPUGraphs(native).record(lambda: None, bindings(1))


def test_recordings_do_not_nest_and_end_with_an_error(native: Native, bindings: Steps) -> None:
    graphs, step, out = CPUGraphs(native), bindings(3), torch.ones(3, 8)
    with pytest.raises(EngineError, match="recording another"):
        graphs.record(lambda: graphs.record(lambda: None, step), step)
    assert graphs.record(lambda: CPUOps(native).scale(out, 2.0), step).steps == 1


def test_ids_beyond_the_vocabulary_are_refused_before_anything_is_read(
    native: Native, bindings: Steps
) -> None:
    ops, table, out = CPUOps(native), torch.randn(9, 8), torch.empty(5, 8)
    step = bindings(3)
    program = CPUGraphs(native).record(lambda: ops.embedding(out[:3], step.ids, table, 1.0), step)
    program.replay(bindings(5))
    assert torch.equal(out, table[:5])
    later = bindings(5)
    later.ids[4] = 9
    with pytest.raises(BadArgumentError):
        program.replay(later)
