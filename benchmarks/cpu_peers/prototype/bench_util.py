"""What a prototype's program finds under this name: its three functions are served jobs like any engine's.

A prototype is a folder with `engine.py`, which takes `--model DIR --name NAME --kind bf16|q8|q4 --threads N` and hands
`standard` its functions: `prefill(ids)`, `decode(ids, n)` and `batch(list of ids, n)`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cpu_peers.rounds import channel, serve
from cpu_peers.rounds import prompts as draw

__all__ = ["T_PROC", "PeakRSS", "prompts", "quiet", "standard"]

T_PROC = time.time()
ANSWERS = channel()


def prompts(count: int, length: int, seed: int = 0) -> list[list[int]]:
    """Random token ids."""
    return draw(count, length, seed)


def PeakRSS() -> None:
    """Memory is measured from outside."""


def quiet() -> bool:
    """The benchmark has waited already."""
    return True


def standard(*args: Any, **_: Any) -> None:
    """Serve jobs with the program's functions."""
    decode: Callable[[list[int], int], Any] = args[7]
    batch: Callable[[list[list[int]], int], Any] = args[8]

    def generate(ids: list[list[int]], output: int) -> int:
        decode(ids[0], output) if len(ids) == 1 else batch(ids, output)
        return len(ids) * output

    serve(ANSWERS, generate, version="prototype")
