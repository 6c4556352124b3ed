"""The native library for tests: one ISA level and a number of threads at a time, put back afterwards."""

from collections.abc import Callable, Iterator

import pytest
import torch

from turret.contracts import AttentionBatch, StepBindings
from turret_platform_cpu.native import Native, load

LOADED = load()
LEVELS = LOADED.levels() if LOADED is not None else []


@pytest.fixture
def native() -> Iterator[Native]:
    if LOADED is None:
        pytest.skip("the native library was not built")
    before = LOADED.level()
    LOADED.start(2, ())
    yield LOADED
    LOADED.use_level(before)
    LOADED.start(1, ())


@pytest.fixture(params=LEVELS or ["none"])
def level(request: pytest.FixtureRequest, native: Native) -> str:
    """Each ISA level that this machine runs."""
    name: str = request.param
    native.use_level(name)
    return name


@pytest.fixture
def threads(native: Native) -> Callable[[int], None]:
    return lambda count: native.start(count, ())


@pytest.fixture
def bindings() -> Callable[[int], StepBindings]:
    """Steps of one request by their number of tokens."""
    return _one_request


def _one_request(count: int) -> StepBindings:
    starts, lengths = torch.tensor([0, count], dtype=torch.int32), torch.tensor([count], dtype=torch.int32)
    batch = AttentionBatch(
        starts, lengths, torch.tensor([[1]], dtype=torch.int32), torch.arange(count) + 16, [0, count], [count], count,
        count, 0, 16, None)  # fmt: skip
    return StepBindings(torch.arange(count), torch.arange(count), [batch])
