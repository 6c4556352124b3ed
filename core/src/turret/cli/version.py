"""`turret version`.

Owns: the line it prints. Knows nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    """Print the version."""
    print(f"turret {version('turret')}")
    return 0
