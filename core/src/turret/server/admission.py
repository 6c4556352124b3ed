"""The bound on how much may wait: who is refused while the queue is full, with true numbers.

Owns: the count of requests and prompt tokens that were taken in and have not had their first token yet. Knows nothing
of engines or HTTP, nor of deadlines: a request that waits too long is ended by the scheduler, which alone knows for
certain that it never ran.

The count is that of all front ends of a server, in a ledger they share, so it is exact at every moment; the engine's
statistics come too late to decide by.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from turret.errors import QueueFullError, RequestError
from turret.messages import Request
from turret.transport import Ledger

__all__ = ["AdmissionQueue", "QueueLimits", "Ticket", "queue_deadline"]

SHORTEST_RETRY, LONGEST_RETRY = 1.0, 60.0
REQUESTS_COLUMN, TOKENS_COLUMN = 0, 1
"""Where the ledger has them."""
WEIGHT_OF_LAST = 0.1
"""Share of the latest wait in the running mean of waits."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Most requests and prompt tokens that may wait for their first token; None: no bound."""

    max_requests: int | None = None
    max_tokens: int | None = None


class AdmissionQueue:
    """What waits for its first token now. An empty queue takes a call of any size: it has nobody to wait for."""

    def __init__(
        self, limits: QueueLimits, clock: Callable[[], float] = time.monotonic, ledger: Ledger | None = None
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._mean_wait = 0.0
        self._ledger = ledger or Ledger(columns=2)
        self._requests = self._ledger.count(REQUESTS_COLUMN)
        self._tokens = self._ledger.count(TOKENS_COLUMN)

    @property
    def num_requests(self) -> int:
        """Requests that wait, at all front ends."""
        return self._requests.total

    @property
    def num_tokens(self) -> int:
        """Their prompt tokens."""
        return self._tokens.total

    def check(self) -> None:
        """Raise `QueueFullError` when not even the smallest call could be taken: decided before its body is read."""
        self._check(1, 1)

    def enter(self, requests: Sequence[Request]) -> Ticket:
        """Count a call's requests as waiting, or raise `QueueFullError` with nothing done."""
        sizes = {r.request_id: len(r.prompt_token_ids) for r in requests}
        with self._ledger.exclusive():
            self._check(len(sizes), sum(sizes.values()))
            return Ticket(self, sizes, self._clock())

    def _check(self, requests: int, tokens: int) -> None:
        if not self.num_requests:
            return
        limits = self._limits
        if limits.max_requests is not None and self.num_requests + requests > limits.max_requests:
            raise self._full(f"{self.num_requests} requests", requests, limits.max_requests, "requests")
        if limits.max_tokens is not None and self.num_tokens + tokens > limits.max_tokens:
            raise self._full(f"{self.num_tokens} prompt tokens", tokens, limits.max_tokens, "tokens")

    def _full(self, waiting: str, more: int, limit: int, what: str) -> QueueFullError:
        return QueueFullError(
            f"the queue is full: {waiting} wait for their first token, and {more} more would pass the {limit} of "
            f"--max-queue-{what}; try again later",
            min(LONGEST_RETRY, max(SHORTEST_RETRY, math.ceil(self._mean_wait))),
        )

    def count(self, requests: int, tokens: int) -> None:
        """Called by tickets: so many came (or went, when negative)."""
        self._requests.add(requests)
        self._tokens.add(tokens)

    def waited(self, since: float) -> None:
        """Called by tickets: a request that came at `since` has its first token."""
        self._mean_wait += WEIGHT_OF_LAST * (self._clock() - since - self._mean_wait)


class Ticket:
    """One call's place in the queue. It gives back what is left when closed, and also when whoever holds it is dropped
    without ever running (a client that hangs up between the check and the first step)."""

    def __init__(self, queue: AdmissionQueue, sizes: Mapping[str, int], since: float) -> None:
        self.waiting = dict(sizes)
        self._queue = queue
        self._since = since
        queue.count(len(sizes), sum(sizes.values()))
        weakref.finalize(self, _give_back, queue, self.waiting)

    def started(self, request_id: str) -> None:
        """A request had its first event; later ones change nothing."""
        tokens = self.waiting.pop(request_id, None)
        if tokens is not None:
            self._queue.count(-1, -tokens)
            self._queue.waited(self._since)

    def close(self) -> None:
        """The call is over; safe to repeat."""
        _give_back(self._queue, self.waiting)


def _give_back(queue: AdmissionQueue, waiting: dict[str, int]) -> None:
    queue.count(-len(waiting), -sum(waiting.values()))
    waiting.clear()


def queue_deadline(header: str | None, limit: float | None, arrival: float) -> float | None:
    """When a request must have begun (`time.time()`): the operator's limit, which the client's header may shorten.

    Raises `RequestError` for a header that is no number of seconds above 0.
    """
    asked = _seconds(header)
    timeouts = [t for t in (asked, limit) if t is not None]
    return arrival + min(timeouts) if timeouts else None


def _seconds(header: str | None) -> float | None:
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise RequestError(
            f"X-Turret-Queue-Timeout must be a number of seconds above 0, got {header[:40]!r}", "X-Turret-Queue-Timeout"
        )
    return seconds
