"""The bar that shows how loading goes.

Owns: what a person sees while `LLM` starts. Knows nothing of what is loaded.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tqdm import tqdm

__all__ = ["LoadBar"]

_DELAY = 1.0
"""Seconds before the bar shows at all: what loads faster needs none."""


class LoadBar:
    """One bar for all stages, on a terminal only; `update` moves it."""

    def __init__(self, show: bool) -> None:
        self._bar = tqdm(
            total=1.0, delay=_DELAY, disable=None if show else True, leave=False, dynamic_ncols=True,
            bar_format="{desc} {percentage:3.0f}% {bar} {elapsed}",
        )  # fmt: skip

    def update(self, stage: str, fraction: float) -> None:
        """`stage` has come to `fraction` (0 to 1)."""
        self._bar.set_description_str(stage, refresh=False)
        self._bar.update(fraction - self._bar.n)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
