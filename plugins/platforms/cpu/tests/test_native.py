"""The library itself: its levels, its threads, what a fork does to them, and how it is built."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from turret.contracts import LinearCall, QuantizedWeight
from turret.errors import PluginError
from turret_platform_cpu.linear import NativeLinear
from turret_platform_cpu.native import LEVEL_VARIABLE, Native, load

HOOK = Path(__file__).parents[1] / "hatch_build.py"


def multiply(native: Native, rows: int = 40) -> torch.Tensor:
    weight = torch.randn(256, 128, generator=torch.Generator().manual_seed(0))
    kernel = NativeLinear(native)
    packed = kernel.pack(QuantizedWeight(None, 256, 128, {"weight": weight}))
    out = torch.empty(rows, 256)
    kernel.apply(LinearCall(out, torch.ones(rows, 128), packed, None))
    return out


def test_the_generic_level_is_always_there_and_last(native: Native) -> None:
    assert native.levels()[-1] == "generic" and native.level() in native.levels()


def test_a_level_can_be_chosen_by_environment(native: Native) -> None:
    code = "from turret_platform_cpu.native import load; print(load().level())"
    env = {**os.environ, LEVEL_VARIABLE: "generic"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "generic"


def test_a_level_that_does_not_run_here_is_an_error(native: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, "avx9000")
    with pytest.raises(PluginError, match=r"avx9000.*generic"):
        load()


def test_a_broken_library_is_an_error_that_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "libturret_cpu.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr("turret_platform_cpu.native.library_path", lambda: broken)
    with pytest.raises(PluginError, match="reinstall turret-platform-cpu"):
        load()


def test_without_a_library_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turret_platform_cpu.native.library_path", lambda: tmp_path / "missing.so")
    assert load() is None


def test_threads_can_be_restarted_with_other_numbers(native: Native) -> None:
    expected = multiply(native)
    for count in (1, 4, 2, 8, 1, 3):
        native.start(count, ())
        assert native.threads() == count
        assert torch.equal(multiply(native), expected)


def test_a_number_of_threads_beyond_reason_is_refused(native: Native) -> None:
    with pytest.raises(PluginError, match="0 compute threads"):
        native.start(0, ())


def test_a_sleeping_pool_wakes_and_an_idle_one_uses_no_cpu(native: Native) -> None:
    """The pool's threads stop spinning by themselves: half a second idle costs less than a tenth of one."""
    code = (
        "import time, resource; from turret_platform_cpu.native import load\n"
        "n = load(); n.start(4, ())\n"
        "from turret_platform_cpu.native import Native\n"
        "spent = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])\n"
        "time.sleep(0.1); before = spent(); time.sleep(0.5); print(spent() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.05


def test_a_forked_child_computes_without_the_parents_threads() -> None:
    code = (
        "import os, torch\n"
        "from turret_platform_cpu.native import load\n"
        "n = load(); n.start(3, ())\n"
        "w = torch.ones(64, 32); p = n.pack_plain(0, w.data_ptr(), 32, (64, 32)); f = n.op('tc_linear')\n"
        "def run():\n"
        "    x, out = torch.ones(40, 32), torch.empty(40, 64)\n"
        "    f(p.handle, x.data_ptr(), 32, out.data_ptr(), 64, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0)\n"
        "    return bool((out == 32).all())\n"
        "assert run()\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(0 if run() and n.threads() == 1 else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.fixture
def hook() -> ModuleType:
    pytest.importorskip("hatchling", reason="hatchling builds the package; installed ones need it no more")
    spec = importlib.util.spec_from_file_location("turret_cpu_hatch_build", HOOK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_building_without_a_compiler_leaves_a_pure_package(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("TURRET_CPU_NATIVE", raising=False)
    (tmp_path / "src" / "turret_platform_cpu").mkdir(parents=True)
    data: dict[str, object] = {"artifacts": []}
    builder = hook.NativeLibrary(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    builder.initialize("standard", data)
    assert data == {"artifacts": []}
    assert "no C++ compiler" in capsys.readouterr().err


def test_the_library_can_be_demanded(hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("TURRET_CPU_NATIVE", "1")
    (tmp_path / "src" / "turret_platform_cpu").mkdir(parents=True)
    builder = hook.NativeLibrary(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    with pytest.raises(FileNotFoundError, match="no C\\+\\+ compiler"):
        builder.initialize("standard", {"artifacts": []})
