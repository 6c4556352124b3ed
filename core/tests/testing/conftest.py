"""A directory of real distributions, first on sys.path of this process and of those it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from turret.testing.sites import Site, on_path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    with on_path(tmp_path / "site") as made:
        yield made
