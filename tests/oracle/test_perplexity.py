"""What the kernels round costs less than half a percent of perplexity, against transformers in float32."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.model

PROGRAM = Path(__file__).parents[2] / "benchmarks/perplexity.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    pytest.importorskip("gguf")
    spec = importlib.util.spec_from_file_location("perplexity", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("form", ["q8_0"])
def test_perplexity_is_that_of_the_weights(program: ModuleType, form: str, tmp_path: Path) -> None:
    """A short text moves the ratio by its standard error, so this one is given two of them."""
    (path,) = program.made([form], tmp_path).values()
    found = program.compare(path, 2)
    assert found["error"] < program.BOUND
    assert found["ratio"] == pytest.approx(1, abs=program.BOUND + 2 * found["error"])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"])
def test_perplexity_on_a_longer_text(program: ModuleType, form: str, tmp_path: Path) -> None:
    (path,) = program.made([form], tmp_path).values()
    assert program.compare(path, 32)["ratio"] == pytest.approx(1, abs=program.BOUND)
