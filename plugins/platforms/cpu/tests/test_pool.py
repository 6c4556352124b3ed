"""The thread pool by itself, in a small program of its own: steps in order, and no data race."""

import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NATIVE = TESTS.parent / "native"
COMPILER = next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), None)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("sanitizer", ["none", "thread", "address,undefined"])
def test_steps_of_a_job_follow_one_another(sanitizer: str, tmp_path: Path) -> None:
    program = tmp_path / "pool_steps"
    flags = [] if sanitizer == "none" else [f"-fsanitize={sanitizer}", "-fno-sanitize-recover"]
    sources = [str(TESTS / "pool_steps.cpp"), str(NATIVE / "pool.cpp")]
    built = subprocess.run(
        [str(COMPILER), "-std=c++17", "-O1", "-g", "-pthread", *flags, "-I", str(NATIVE), *sources, "-o", str(program)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if built.returncode and sanitizer != "none":
        pytest.skip(f"the compiler has no sanitizer {sanitizer}")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout == "0 wrong\n", done.stdout + done.stderr
