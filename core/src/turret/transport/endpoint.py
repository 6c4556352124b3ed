"""A private place for an engine's socket.

Owns: the directory that only this user may enter, and the address in it. Knows nothing of who listens there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["PrivateEndpoint"]

MAX_SOCKET_PATH = 100
"""Bytes of a Unix socket's path that every kernel accepts (macOS 104, Linux 108), less the closing zero."""


class PrivateEndpoint:
    """A fresh directory of mode 0700 and the address `ipc://<directory>/engine` in it.

    Anyone who can open the socket can run prompts and stop the engine; the directory's mode is what keeps others out.
    """

    def __init__(self) -> None:
        self.directory = _private_directory()
        self.address = f"ipc://{self.directory}/engine"

    def remove(self) -> None:
        """Delete directory and socket; safe to repeat."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _private_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="turret-"))
    if len(os.fsencode(directory / "engine")) <= MAX_SOCKET_PATH:
        return directory
    directory.rmdir()
    return Path(tempfile.mkdtemp(prefix="turret-", dir="/tmp"))  # TMPDIR is too deep for a socket's path
