"""Static requirements and the presence of hardware, judged without importing a plugin.

Owns those two checks. Knows nothing of selection.
"""

from __future__ import annotations

import glob
import importlib.util
import os

from turret.plugins.manifest import Detect, Requires
from turret.plugins.verdict import Verdict

__all__ = ["hardware_shown", "judge_requirements", "module_exists"]


def module_exists(name: str) -> bool:
    """Whether a top-level module could be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a module in sys.modules without a spec exists, whatever its origin
        return True


def judge_requirements(requires: Requires, hardware: frozenset[str] | None) -> Verdict:
    """Check modules and hardware. Hardware is not judged while nobody has probed it yet (None)."""
    reasons = [f"module {name!r} is not installed" for name in requires.modules if not module_exists(name)]
    if hardware is not None:
        shown = ", ".join(sorted(hardware)) or "none"
        lacking = [item for item in requires.hardware if item not in hardware]
        reasons.extend(f"hardware {item} is not here (found: {shown})" for item in lacking)
    return Verdict.no(*reasons) if reasons else Verdict.yes()


def hardware_shown(detect: Detect) -> tuple[str, ...]:
    """What shows that a platform's hardware is present: matching files and set environment variables."""
    files = [path for pattern in detect.files for path in sorted(glob.glob(pattern))]
    return (*files, *(f"${name}" for name in detect.env if os.environ.get(name)))
