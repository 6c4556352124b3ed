"""The pretend device does what its options say."""

from __future__ import annotations

import pytest

from turret.contracts import ConfigView, Platform, WorkerEnv
from turret_platform_fake.platform import FakePlatform


def test_is_a_platform() -> None:
    assert isinstance(FakePlatform(), Platform)


def test_probe_finds_as_many_devices_as_told() -> None:
    devices = FakePlatform({"devices": 3, "memory_bytes": 100}).probe()
    assert [(d.index, d.total_memory) for d in devices] == [(0, 100), (1, 100), (2, 100)]
    assert FakePlatform({"devices": 0}).probe() == []


@pytest.mark.parametrize("method", ["probe", "patch_config", "memory", "start_worker", "ops"])
def test_fails_where_told(method: str) -> None:
    platform = FakePlatform({"fail": [method]})
    arguments = {"patch_config": (ConfigView({}, {}),), "memory": (0,), "start_worker": (WorkerEnv(0, 0, 1, None),)}
    with pytest.raises(RuntimeError, match=f"{method} was told to fail"):
        getattr(platform, method)(*arguments.get(method, ()))


def test_refuses_a_device_that_does_not_exist() -> None:
    with pytest.raises(RuntimeError, match="device 2 does not exist"):
        FakePlatform({"devices": 2}).start_worker(WorkerEnv(2, 0, 1, None))


def test_memory_shrinks_as_the_process_grows() -> None:
    platform = FakePlatform({"memory_bytes": 1 << 30})
    platform.start_worker(WorkerEnv(0, 0, 1, None))
    before = platform.memory(0).free
    held = bytearray(64 << 20)
    assert before - platform.memory(0).free >= len(held) * 0.9


def test_each_device_has_a_memory_of_its_own() -> None:
    platform = FakePlatform({"devices": 3, "memory_bytes": [300, 200]})
    assert [d.total_memory for d in platform.probe()] == [300, 200, 200]
    assert [platform.memory(i).total for i in range(3)] == [300, 200, 200]


def test_faults_of_one_device_are_not_those_of_another() -> None:
    options = {"devices": 2, "faulty_device": 1, "fail": ["synchronize", "start_worker"], "die_at_step": 1}
    sound, faulty = FakePlatform(options), FakePlatform(options)
    sound.start_worker(WorkerEnv(0, 0, 1, None))
    sound.synchronize(0)
    assert sound.ops() is None
    with pytest.raises(RuntimeError, match="start_worker was told to fail"):
        faulty.start_worker(WorkerEnv(1, 0, 1, None))
    with pytest.raises(RuntimeError, match="synchronize was told to fail"):
        faulty.synchronize(1)
