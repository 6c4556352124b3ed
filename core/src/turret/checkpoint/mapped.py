"""Read-only memory maps of weight files.

Owns: opening a file so that its bytes can be viewed without a copy. Knows nothing of formats.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from turret.errors import LoadError

__all__ = ["map_file", "read_ahead"]

_CHUNK = 8 << 20


def map_file(path: str | os.PathLike[str]) -> memoryview:
    """The file's bytes as one read-only view; the map lives as long as any view of it.

    Pages come in when they are touched and can be dropped by the system at any time, so a view costs no memory of its
    own. Raises LoadError, naming the file, when it cannot be opened or is empty.
    """
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise LoadError(f"{path}: the file is empty; download or copy it again")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as exc:
        raise LoadError(f"{path}: cannot be read: {exc}") from exc


def read_ahead(path: str | os.PathLike[str]) -> None:
    """Read the file once from end to end, so that its pages are there when they are touched.

    In one sweep, where a map would fetch page by page: what file systems across a network are good at.
    """
    buffer = bytearray(_CHUNK)
    try:
        with Path(path).open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    except OSError as exc:
        raise LoadError(f"{path}: cannot be read: {exc}") from exc
