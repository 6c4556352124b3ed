"""What a run needs besides its own requests.

Owns: the bundle, and everything that opens and closes with a call. Knows nothing of what a run does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from turret.server.admission import Ticket
from turret.server.expansion import Generation
from turret.server.lifecycle import Lifecycle
from turret.server.metrics import ServerMetrics
from turret.server.open_calls import OpenCalls
from turret.server.parts import ServerParts
from turret.server.timing import CallTimer
from turret.server.tracing import CallTracer

__all__ = ["RunTools"]


@dataclass(frozen=True, slots=True)
class RunTools:
    """The engine's client and the text side (`parts`), and who must know of a call."""

    parts: ServerParts
    lifecycle: Lifecycle
    calls: OpenCalls
    metrics: ServerMetrics
    tracer: CallTracer | None = None

    @contextmanager
    def opened(self, job: Generation, ticket: Ticket, abort: Callable[[], Awaitable[None]]) -> Iterator[CallTimer]:
        """A call while it runs: counted, timed, found by its id; `abort` ends it at once."""
        with (
            self.lifecycle.admit(abort),
            self.calls.hold(job.tenant, (job.request_id, *job.other_ids), abort),
            closing(ticket),
            CallTimer(job, self.metrics, self.parts.hooks, self.tracer) as timer,
        ):
            yield timer
