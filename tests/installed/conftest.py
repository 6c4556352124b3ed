"""One virtual environment for the whole directory: making it costs more than most tests here."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from venvs import Venv

DOCS = Path(__file__).parents[2] / "docs" / "plugins"


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """Made anew, with no plugin of ours in it."""
    return Venv.make(tmp_path_factory.mktemp("installed") / "venv")


@pytest.fixture(scope="session")
def docs() -> Path:
    return DOCS


@pytest.fixture
def port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number
