"""The family that docs/models.md adds: short, and equal to transformers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hf_pairs import Case, close, make_pair, tokens

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """The page's files by name."""
    return dict(re.findall(r"^`([^`]+)`:\n\n```\w+\n(.*?)^```", PAGE.read_text(), re.M | re.S))


def test_the_page_is_under_sixty_lines_of_files(files: dict[str, str]) -> None:
    assert set(files) == {"src/turret_model_jais2/__init__.py", "pyproject.toml"}
    assert sum(len(text.splitlines()) for text in files.values()) < 60


@torch.inference_mode()
def test_the_family_equals_transformers(files: dict[str, str], tmp_path: Path) -> None:
    found: dict[str, object] = {}
    exec(files["src/turret_model_jais2/__init__.py"], found)  # the page is ours, and this is its test
    pair = make_pair(Case("jais2", "Jais2", {}), tmp_path, found["JAIS2"])  # type: ignore[arg-type]
    ids = tokens(5, 21)
    parts = [pair.driver.step({"a": ids[:13]})["a"], *(pair.driver.step({"a": [token]})["a"] for token in ids[13:])]
    close(torch.cat(parts), pair.expected(ids))
