"""turret: LLM inference and serving with a small core and everything else as plugins.

Owns: the names most programs start with, `LLM` and `SamplingParams`, loaded when first used, so that `import turret`
costs nothing. Knows nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turret.llm import LLM, CompletionOutput, RequestOutput
    from turret.sampling import SamplingParams
    from turret.structured import StructuredOutputsParams

__all__ = ["LLM", "CompletionOutput", "RequestOutput", "SamplingParams", "StructuredOutputsParams", "__version__"]

_HOMES = {
    "LLM": "turret.llm",
    "RequestOutput": "turret.llm",
    "CompletionOutput": "turret.llm",
    "SamplingParams": "turret.sampling",
    "StructuredOutputsParams": "turret.structured",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("turret")
    raise AttributeError(f"module 'turret' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
