"""A directory of real distributions, first on sys.path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from turret.testing.sites import Site, on_path


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with on_path(tmp_path / "site") as made:
        yield made
