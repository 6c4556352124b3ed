"""The native library for tests: one ISA level and a number of threads at a time, put back afterwards."""

from collections.abc import Callable, Iterator

import pytest

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
