"""A directory of real distributions, first on sys.path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turret.testing.sites import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty site directory, first on sys.path; what tests import from it is forgotten afterwards."""
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(str(path))
    yield Site(path)
    for name in [name for name, module in sys.modules.items() if str(path) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]
