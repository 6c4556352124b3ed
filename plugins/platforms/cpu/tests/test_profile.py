"""Time by kernel: counted between start and stop, called or replayed, and told apart by what was computed."""

import pytest
import torch

from turret.contracts import KernelTime, LinearCall, ProfilingPlatform, QuantizedWeight
from turret_platform_cpu.linear import NativeLinear
from turret_platform_cpu.native import Native
from turret_platform_cpu.platform import CPUPlatform
from turret_platform_cpu.profile import NativeProfile


def multiply(native: Native, shape: tuple[int, int], rows: int) -> None:
    kernel = NativeLinear(native)
    packed = kernel.pack(QuantizedWeight(None, *shape, {"weight": torch.ones(shape)}))
    kernel.apply(LinearCall(torch.empty(rows, shape[0]), torch.ones(rows, shape[1]), packed, None))


def test_calls_are_counted_by_shape(native: Native) -> None:
    profile = NativeProfile(native)
    profile.start()
    for _ in range(3):
        multiply(native, (64, 32), 5)
    multiply(native, (96, 32), 1)
    found = {one.detail: one for one in profile.stop()}
    assert {detail: one.calls for detail, one in found.items()} == {"[64, 32] 32 bit": 3, "[96, 32] 32 bit": 1}
    one = found["[64, 32] 32 bit"]
    assert one.name == "linear" and one.seconds > 0
    assert one.operations == 3 * 5 * 2 * 64 * 32 and one.weight_bytes >= 3 * 64 * 32 * 4


def test_nothing_is_counted_outside(native: Native) -> None:
    profile = NativeProfile(native)
    profile.start()
    profile.stop()
    multiply(native, (64, 32), 5)
    assert profile.stop() == []


def test_the_longest_comes_first(native: Native) -> None:
    profile = NativeProfile(native)
    profile.start()
    multiply(native, (32, 32), 1)
    multiply(native, (1024, 1024), 64)
    seconds = [one.seconds for one in profile.stop()]
    assert len(seconds) == 2 and seconds == sorted(seconds, reverse=True)


@pytest.mark.usefixtures("native")
def test_the_platform_offers_it() -> None:
    platform = CPUPlatform()
    assert isinstance(platform, ProfilingPlatform)
    platform.start_profile()
    assert all(isinstance(one, KernelTime) for one in platform.stop_profile())
