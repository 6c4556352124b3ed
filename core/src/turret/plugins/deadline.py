"""Run a plugin's answer under a deadline.

Owns the thread that waits in the caller's stead. Knows nothing of what is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["run_with_deadline"]

T = TypeVar("T")


def run_with_deadline(call: Callable[[], T], seconds: float, name: str) -> T:
    """Call in a thread of its own; raises TimeoutError when it takes longer than `seconds`.

    Python cannot end a thread, so a call that hangs goes on in the background: as a daemon it does not keep the
    process alive. Exceptions of the call are raised here, SystemExit included.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as exc:  # SystemExit in a thread would vanish silently
            future.set_exception(exc)

    threading.Thread(target=work, name=f"turret-deadline-{name}", daemon=True).start()
    return future.result(timeout=seconds)
