"""Ctrl-C while a server starts.

Owns: that the start ends for it wherever it strikes. Knows nothing of what is started.

A start imports half a dozen libraries. A KeyboardInterrupt raised inside one of them can be lost: code that catches
everything takes it, and an extension's callback cannot pass it on. So it is remembered as well, and looked for where a
step of the start is done; once the event loop runs, it cancels what waits there.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Self, TypeVar

__all__ = ["Interrupts"]

T = TypeVar("T")


class Interrupts:
    """A context in which SIGINT is remembered; outside a main thread, which hears no signals, it does nothing."""

    def __init__(self) -> None:
        self._heard = False
        self._listens = threading.current_thread() is threading.main_thread()
        self._before: Callable[[int, FrameType | None], Any] | int | None = None

    def __enter__(self) -> Self:
        if self._listens:
            self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        if self._listens:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raises KeyboardInterrupt if there was a signal that nobody saw."""
        if self._heard:
            raise KeyboardInterrupt

    async def until(self, waited: Awaitable[T]) -> T:
        """What is waited for; a signal cancels it and raises KeyboardInterrupt."""
        task = asyncio.ensure_future(waited)
        loop = asyncio.get_running_loop()
        if self._listens:
            loop.add_signal_handler(signal.SIGINT, self._cancel, task)
        try:
            if self._heard:
                task.cancel()
            return await task
        except asyncio.CancelledError:
            self.check()
            raise
        finally:
            if self._listens:
                loop.remove_signal_handler(signal.SIGINT)

    def _cancel(self, task: asyncio.Future[Any]) -> None:
        self._heard = True
        task.cancel()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._heard = True
        raise KeyboardInterrupt
