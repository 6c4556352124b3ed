"""What the platform says of cores and memory, read from made-up systems; and its defaults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turret.contracts import ConfigView, WorkerEnv
from turret_platform_cpu.cores import Processor, compute_cpus, first_of_each_core, processor, quota
from turret_platform_cpu.memory import memory_info
from turret_platform_cpu.native import Native
from turret_platform_cpu.platform import CPUPlatform

GIB = 1 << 30


def system(root: Path, files: dict[str, str]) -> Path:
    """A root folder with these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n", "proc/self/statm": "1000 250 0\n"}


def test_memory_of_a_machine_without_limits(tmp_path: Path) -> None:
    info = memory_info(system(tmp_path, MEMINFO))
    assert (info.total, info.free) == (16 * GIB, 8 * GIB)
    assert info.used_here == 250 * os.sysconf("SC_PAGE_SIZE")


def test_the_tightest_group_limits_memory_and_droppable_pages_do_not_count(tmp_path: Path) -> None:
    root = system(
        tmp_path,
        MEMINFO
        | {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/inner/memory.max": "max\n",
            "sys/fs/cgroup/outer/inner/memory.current": f"{GIB}\n",
            "sys/fs/cgroup/outer/inner/memory.stat": f"anon 1\ninactive_file {GIB // 2}\n",
            "sys/fs/cgroup/outer/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/outer/memory.current": f"{2 * GIB}\n",
        },
    )
    info = memory_info(root)
    assert info.total == 4 * GIB
    assert info.free == 4 * GIB - (2 * GIB - GIB // 2)


def test_memory_limits_of_version_1_groups(tmp_path: Path) -> None:
    root = system(
        tmp_path,
        MEMINFO
        | {
            "proc/self/cgroup": "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": f"{2 * GIB}\n",
            "sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes": f"{GIB}\n",
        },
    )
    assert (memory_info(root).total, memory_info(root).free) == (2 * GIB, GIB)


@pytest.mark.parametrize(("text", "expected"), [("150000 100000", 1.5), ("max 100000", None)])
def test_cpu_quota_of_version_2_groups(text: str, expected: float | None, tmp_path: Path) -> None:
    root = system(tmp_path, {"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/cpu.max": text})
    assert quota(root) == expected


def test_cpu_quota_of_version_1_groups(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/cpu/docker/abc/"
    files = {folder + "cpu.cfs_quota_us": "200000", folder + "cpu.cfs_period_us": "100000"}
    assert quota(system(tmp_path, {"proc/self/cgroup": "3:cpu,cpuacct:/docker/abc\n"} | files)) == 2.0


def test_two_threads_of_a_core_count_once(tmp_path: Path) -> None:
    pairs = {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}
    files = {f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": text for n, text in pairs.items()}
    assert first_of_each_core([0, 1, 4, 5, 9], system(tmp_path, files)) == [0, 1, 9]
    assert first_of_each_core([4, 5], tmp_path) == [4, 5]


def test_a_quota_below_the_cores_bounds_the_threads(tmp_path: Path) -> None:
    root = system(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000"})
    assert len(compute_cpus(root)) == 1


def test_the_processor_is_named_with_what_it_can_do(tmp_path: Path) -> None:
    text = "processor: 0\nmodel name\t: Some CPU\nflags\t: fpu avx2 avx512f avx512_bf16\n\nprocessor: 1\nmodel name: y"
    found = processor(system(tmp_path, {"cpuinfo": text}) / "cpuinfo")
    assert found.name == "Some CPU" and found.features == {"avx2", "avx512f", "avx512_bf16"}
    assert processor(tmp_path / "missing").features == frozenset()


def test_probe_finds_this_machine() -> None:
    (device,) = CPUPlatform().probe()
    assert device.index == 0 and device.name and device.total_memory > 0


def test_defaults_fill_only_what_the_user_left_open() -> None:
    patch = CPUPlatform().patch_config(ConfigView({"block_size": 32, "dtype": "float32"}, {}))
    assert "block_size" not in patch.values and "dtype" not in patch.values
    assert patch.values["max_num_seqs"] == 64 and set(patch.reasons) == set(patch.values)


@pytest.mark.parametrize(("features", "dtype"), [({"avx512_bf16"}, "bfloat16"), ({"avx2"}, "float32")])
def test_dtype_follows_the_processor(features: set[str], dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turret_platform_cpu.platform.processor", lambda: Processor("any", frozenset(features)))
    assert CPUPlatform().patch_config(ConfigView({}, {})).values["dtype"] == dtype


def test_a_worker_starts_as_many_threads_as_it_is_told(native: Native) -> None:
    CPUPlatform().start_worker(WorkerEnv(0, 0, 1, 3))
    assert native.threads() == 3


def test_without_the_library_torch_serves_and_one_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("turret_platform_cpu.platform.load", lambda: None)
    assert CPUPlatform().ops() is None
    (record,) = caplog.records
    assert "install a C++ compiler" in record.message


def test_naming_the_platform_loads_no_torch() -> None:
    code = (
        "import sys; from turret_platform_cpu.platform import CPUPlatform; from turret_platform_cpu.attention import "
        "CPUAttention; CPUPlatform().probe(); CPUAttention(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
