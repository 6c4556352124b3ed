"""Questions that all front ends of one server answer together.

Owns: what is asked by name and who answers here. Knows nothing of the processes: with one front end the answer is its
own, with several somebody carries question and answers between them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Alone", "Handlers", "Peers"]

Handler = Callable[[Any], Any]
"""Takes the question's argument and gives plain data, or something to await that does."""


class Peers(Protocol):
    """The front ends of one server, as one of them sees them."""

    @property
    def several(self) -> bool:
        """True where there is more than one."""

    def answer(self, what: str, handler: Handler) -> None:
        """From now on `handler` answers for this front."""

    async def ask(self, what: str, argument: Any = None) -> list[Any]:
        """What each front says. A front that dies or hangs meanwhile is left out, except that what it said last stands
        for its counters."""


class Handlers:
    """Who answers here."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def set(self, what: str, handler: Handler) -> None:
        """Answer a question from now on."""
        self._handlers[what] = handler

    async def call(self, what: str, argument: Any) -> Any:
        """This front's answer; None where nobody answers."""
        handler = self._handlers.get(what)
        answer = None if handler is None else handler(argument)
        return await answer if inspect.isawaitable(answer) else answer


class Alone:
    """One front end: it asks itself."""

    several = False

    def __init__(self) -> None:
        self._handlers = Handlers()

    def answer(self, what: str, handler: Handler) -> None:
        """From now on `handler` answers."""
        self._handlers.set(what, handler)

    async def ask(self, what: str, argument: Any = None) -> list[Any]:
        """The one answer."""
        return [await self._handlers.call(what, argument)]
