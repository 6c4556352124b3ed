"""One call with beam search, run on an engine that knows nothing of beams.

Owns: running the steps, and turning the best sequences into choices. Knows nothing of what a step is
(`turret.server.beam_steps`) or of HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from turret.errors import CapacityError
from turret.messages import Request, TokenEvent
from turret.server.admission import Ticket
from turret.server.beam_steps import BeamSteps
from turret.server.choices import Choice, ChoiceDelta
from turret.server.expansion import Generation
from turret.server.run_tools import RunTools

__all__ = ["BeamRun"]


class BeamRun:
    """One call on its way, as any `turret.server.results.Run`."""

    def __init__(self, job: Generation, tools: RunTools, requests: list[Request], ticket: Ticket) -> None:
        self.job = job
        self._tools = tools
        self._ticket = ticket
        self._steps = BeamSteps(job, requests)
        self._first = [request.request_id for request in requests]
        self._open: list[str] = []
        self._aborted = False
        text = tools.parts.text
        self.choices = [
            Choice(i * job.params.n + k, request.request_id, text.output(job.params, job.prompts[i], job.shown))
            for i, request in enumerate(requests)
            for k in range(job.params.n)
        ]

    @property
    def num_output_tokens(self) -> int:
        """Tokens of the sequences found; what was tried and dropped does not count."""
        return sum(choice.num_tokens for choice in self.choices)

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache held when the search began."""
        return self._steps.num_cached_tokens

    async def deltas(self) -> AsyncGenerator[ChoiceDelta, None]:
        """Each choice, whole, best first."""
        client = self._tools.parts.client
        with self._tools.opened(self.job, self._ticket, self.abort) as timer:
            timer.submitted(self.choices, lambda _: 0)
            while requests := self._steps.requests():
                self._open = [request.request_id for request in requests]
                async with client.submit(requests) as source:
                    events = [event async for event in source if event.finish_reason is not None]
                self._take(requests, events)
            for choice, event in zip(self.choices, self._steps.endings(), strict=True):
                delta = choice.advance(event)
                timer.saw(choice, event)
                timer.finished(choice, delta.finish_reason)
                yield delta

    async def abort(self) -> None:
        """End the step that runs, and the search with it."""
        self._aborted = True
        await self._tools.parts.client.abort(self._open)

    def _take(self, asked: list[Request], events: list[TokenEvent]) -> None:
        """What a step brought. A call that was aborted ends with what it found, or with an error where the server is
        what ends."""
        begins = not self._steps.begun
        self._steps.take(asked, {event.request_id: event for event in events})
        if begins:
            for request_id in self._first:
                self._ticket.started(request_id)
        if self._aborted:
            if self._tools.lifecycle.expired:
                raise CapacityError("the server is shutting down; this request was ended before it was complete")
            self._steps.abort()
