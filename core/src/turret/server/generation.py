"""The core that every generating route shares: prompts in, a stream of deltas per choice out.

Owns: submitting to the engine, following choices, aborting what nobody waits for, timing. Knows nothing of wire shapes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing
from dataclasses import dataclass, field

from turret.config import Config
from turret.engine import event_error
from turret.errors import CapacityError, TurretError
from turret.messages import FinishReason, Request, TokenEvent, TokenLogprobs
from turret.server.admission import AdmissionQueue, QueueLimits, Ticket
from turret.server.choices import Choice, ChoiceDelta, DeltaPacer
from turret.server.expansion import Expander, Generation
from turret.server.lifecycle import Lifecycle
from turret.server.metrics import ServerMetrics
from turret.server.parts import ServerParts
from turret.server.request_log import RequestLog
from turret.server.timing import CallTimer

__all__ = ["ChoiceResult", "GenerationRun", "Generator"]


@dataclass(slots=True)
class ChoiceResult:
    """A whole choice, for answers that are not streamed."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, delta: ChoiceDelta) -> None:
        """Append what one delta brought."""
        self.text += delta.text
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs or ()
        self.prompt_logprobs = delta.prompt_logprobs or self.prompt_logprobs
        self.finish_reason = delta.finish_reason
        self.stop_reason = delta.stop_reason


class GenerationRun:
    """One call on its way. Iterate `deltas` once, or `collect`."""

    def __init__(self, job: Generation, requests: list[Request], generator: Generator, ticket: Ticket) -> None:
        self.job = job
        self._ticket = ticket
        self.choices = [generator.choice(i, r) for i, r in enumerate(requests)]
        self._requests = requests
        self._generator = generator

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far, over all choices."""
        return sum(choice.num_tokens for choice in self.choices)

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache held, for the first choice of each prompt."""
        return sum(choice.num_cached_tokens for choice in self.choices[:: self.job.params.n])

    async def deltas(self) -> AsyncGenerator[ChoiceDelta, None]:
        """Deltas of all choices, mixed, until each has finished.

        Closing it, or cancelling the task that iterates, aborts what still runs. Raises `RequestFailedError` when the
        engine could not finish a choice and `CapacityError` when the server ended the call.
        """
        client, lifecycle = self._generator.parts.client, self._generator.lifecycle
        by_id = {choice.request_id: choice for choice in self.choices}
        timer, pacer = self._generator.timer(self.job), DeltaPacer(self._generator.stream_interval)
        ticket = self._ticket
        with lifecycle.admit(lambda: client.abort(list(by_id))), closing(ticket), timer:
            async with client.submit(self._requests) as source:
                timer.submitted(self.choices, source.engine_of)
                while by_id and (events := await source.batch()):
                    for event in events:
                        if ticket.waiting:
                            ticket.started(event.request_id)
                        choice = by_id.get(event.request_id)
                        if choice is None:
                            continue  # of a step that was under way when a stop string ended the choice
                        if (error := self._failure(event)) is not None:
                            timer.failed(choice)
                            raise error
                        delta = choice.advance(event)
                        timer.saw(choice, event)
                        if choice.finished:
                            del by_id[event.request_id]
                            timer.finished(choice, delta.finish_reason)
                        if choice.needs_abort:
                            await client.abort([event.request_id])
                        if (paced := pacer.pace(delta)) is not None:
                            yield paced

    async def collect(self, watch: Callable[[ChoiceDelta], object] | None = None) -> list[ChoiceResult]:
        """All choices, whole, in order. `watch` sees each delta; what it raises aborts the run."""
        results = [ChoiceResult(choice.index) for choice in self.choices]
        async with aclosing(self.deltas()) as deltas:
            async for delta in deltas:
                results[delta.index].add(delta)
                if watch is not None:
                    watch(delta)
        return results

    def _failure(self, event: TokenEvent) -> TurretError | None:
        if event.finish_reason is FinishReason.ABORT and self._generator.lifecycle.expired:
            return CapacityError("the server is shutting down; this request was ended before it was complete")
        return event_error(event)


class Generator:
    """Starts generations on one engine."""

    def __init__(self, parts: ServerParts, config: Config, lifecycle: Lifecycle, metrics: ServerMetrics) -> None:
        self.parts = parts
        self.lifecycle = lifecycle
        server = config.server
        self.queue = AdmissionQueue(QueueLimits(server.max_queue_requests, server.max_queue_tokens))
        self.stream_interval = config.scheduler.stream_interval
        self._expander = Expander(config.model.seed, parts.eos_token_ids, parts.text)
        self._metrics = metrics
        self._log = RequestLog(config.observability, parts.text)

    def start(self, job: Generation) -> GenerationRun:
        """A run of `job`; nothing is submitted until it is iterated. Raises `CapacityError` while draining or full."""
        self.lifecycle.check()
        requests = self._expander.expand(job)
        ticket = self.queue.enter(requests)
        self._log.received(job)
        return GenerationRun(job, requests, self, ticket)

    def choice(self, index: int, request: Request) -> Choice:
        """A fresh choice for one engine request."""
        output = self.parts.text.output(request.sampling, request.prompt_token_ids)
        return Choice(index, request.request_id, output)

    def timer(self, job: Generation) -> CallTimer:
        """Timing of one call, reported to the metrics."""
        return CallTimer(job, self._metrics, self.parts.hooks)
