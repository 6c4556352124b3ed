"""What importing torch costs a process in memory.

Owns: that figure. Knows nothing of engines.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["torch_import_bytes"]

RESIDENT = "import os; print(int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE'))"


def torch_import_bytes(python: Path) -> int:
    """Resident bytes of an interpreter that imported torch, over those of one that did not."""
    bare, full = (
        int(subprocess.run([python, "-c", f"{first}{RESIDENT}"], capture_output=True, text=True, check=True).stdout)
        for first in ("", "import torch; ")
    )
    return full - bare
