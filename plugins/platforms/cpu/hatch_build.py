"""Builds the native library with the machine's C++ compiler while the package is built or installed editable.

Owns: how the library is compiled. It talks to the compiler directly, so that nothing but a compiler is needed; where
there is none the package still installs, says so once, and runs on torch's ops. TURRET_CPU_NATIVE=0 skips the library,
=1 makes its failure an error.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "libturret_cpu.so"
COMMON = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno", "-pthread")
AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c", "-mprefer-vector-width=512")
LEVELS = {
    "generic": (),
    "avx2": ("-mavx2", "-mfma", "-mf16c"),
    "avx512": AVX512,
    "avx512_vnni": (*AVX512, "-mavx512vnni"),
    "avx512_bf16": (*AVX512, "-mavx512vnni", "-mavx512bf16"),
}
X86 = ("x86_64", "amd64", "i686")


class NativeLibrary(BuildHookInterface):
    """Hatchling's hook; it runs for wheels and for editable installs alike."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        wanted = os.environ.get("TURRET_CPU_NATIVE", "")
        package = Path(self.root) / "src" / "turret_platform_cpu"
        if wanted == "0":
            (package / LIBRARY).unlink(missing_ok=True)
            return
        try:
            build(Path(self.root) / "native", package / LIBRARY)
        except (OSError, subprocess.CalledProcessError) as exc:
            if wanted == "1":
                raise
            (package / LIBRARY).unlink(missing_ok=True)
            detail = getattr(exc, "stderr", "") or str(exc)
            print(f"turret-platform-cpu: no native library, torch ops will serve: {detail}", file=sys.stderr)
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["artifacts"].append(f"src/turret_platform_cpu/{LIBRARY}")


def build(source: Path, target: Path) -> None:
    """Compile every level the compiler knows and link them into one library; raises if there is no compiler."""
    compiler = find_compiler()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        levels = [name for name in LEVELS if name == "generic" or (x86() and knows(compiler, LEVELS[name], out))]
        have = [f"-DTC_HAVE_{name.upper()}" for name in levels]
        units = [(source / "kernels.cpp", out / f"{name}.o", (*LEVELS[name], f"-DTC_LEVEL={name}")) for name in levels]
        common = ("pool", "packed", "packed_blocks", "packed_codes", "program", "fuse", "profile", "abi")
        units += [(source / f"{name}.cpp", out / f"{name}.o", tuple(have)) for name in common]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for done in [pool.submit(run, [*compiler, *COMMON, *f, "-c", str(s), "-o", str(o)]) for s, o, f in units]:
                done.result()
        built = out / LIBRARY
        run([*compiler, "-shared", "-pthread", "-o", str(built), *(str(o) for _, o, _ in units)])
        # Replaced in one step: a process that has the old library open keeps the old file.
        staged = target.with_suffix(".new")
        shutil.copyfile(built, staged)
        staged.replace(target)


def find_compiler() -> list[str]:
    named = os.environ.get("CXX")
    if named:
        return shlex.split(named)
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise FileNotFoundError("no C++ compiler (c++, g++ or clang++) on the path; set CXX to name one")


def x86() -> bool:
    return platform.machine().lower() in X86


def knows(compiler: list[str], flags: tuple[str, ...], out: Path) -> bool:
    """Whether the compiler accepts a level's flags (AVX512-BF16 came with GCC 10 and Clang 9)."""
    probe = out / "probe.cpp"
    probe.write_text("#include <immintrin.h>\nint main() { return 0; }\n", encoding="utf-8")
    command = [*compiler, *flags, "-c", str(probe), "-o", str(out / "probe.o")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
