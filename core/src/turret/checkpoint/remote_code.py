"""Python code that ships with a model: whether it may run, and which revision of it.

Owns: what transformers is told of it. Knows nothing of what the code does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from turret.checkpoint.hub import HUB_ID
from turret.checkpoint.model import ResolveOptions

__all__ = ["RemoteCode"]


class RemoteCode(msgspec.Struct, frozen=True, kw_only=True):
    """`trust` lets it run. `revision` is the code's own where it differs from the model's; `hub` says how a hub is
    asked for it."""

    trust: bool = False
    revision: str | None = None
    hub: ResolveOptions = ResolveOptions()

    def source(self, reference: str | None, directory: Path) -> tuple[str, dict[str, Any]]:
        """What `from_pretrained` takes, by position and by name, for the files of `reference` that lie in `directory`.

        A hub's id stays one where code may run: the files that were fetched have none.
        """
        found: dict[str, Any] = {"trust_remote_code": self.trust, "code_revision": self.revision}
        if not self.trust or reference is None or Path(reference).expanduser().exists() or not HUB_ID.match(reference):
            return str(directory), found
        hub = self.hub
        found |= {"revision": hub.revision, "cache_dir": hub.download_dir, "token": hub.token,
                  "local_files_only": hub.local_files_only}  # fmt: skip
        return reference, found
