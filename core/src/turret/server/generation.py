"""The core that every generating route shares: prompts in, a stream of deltas per choice out.

Owns: submitting to the engine, following choices, aborting what nobody waits for, timing. Knows nothing of wire shapes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from turret.config import Config
from turret.engine import event_error
from turret.errors import CapacityError, TurretError
from turret.messages import FinishReason, Request, TokenEvent
from turret.server.admission import AdmissionQueue, QueueLimits, Ticket
from turret.server.beam_run import BeamRun
from turret.server.beam_steps import check_beams, first_requests
from turret.server.choices import Choice, ChoiceDelta, DeltaPacer
from turret.server.expansion import Expander, Generation
from turret.server.lifecycle import Lifecycle
from turret.server.metrics import ServerMetrics
from turret.server.open_calls import OpenCalls, id_prefix
from turret.server.parts import ServerParts
from turret.server.request_log import RequestLog
from turret.server.results import Run
from turret.server.run_tools import RunTools
from turret.server.tracing import open_tracer

__all__ = ["GenerationRun", "Generator"]


class GenerationRun:
    """One call on its way. Iterate `deltas` once, or `collect`."""

    def __init__(self, job: Generation, tools: RunTools, requests: list[Request], ticket: Ticket) -> None:
        self.job = job
        self.choices = [Choice.of(i, request, tools.parts.text, job.shown) for i, request in enumerate(requests)]
        self._tools = tools
        self._requests = requests
        self._ticket = ticket

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far, over all choices."""
        return sum(choice.num_tokens for choice in self.choices)

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache held, for the first choice of each prompt."""
        return sum(choice.num_cached_tokens for choice in self.choices[:: self.job.params.n])

    async def deltas(self) -> AsyncGenerator[ChoiceDelta, None]:
        """As the engine makes them, paced by the call's `stream_interval`."""
        client, ticket = self._tools.parts.client, self._ticket
        by_id = {choice.request_id: choice for choice in self.choices}
        pacer = DeltaPacer(self.job.stream_interval)
        with self._tools.opened(self.job, ticket, lambda: client.abort(list(by_id))) as timer:
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

    def _failure(self, event: TokenEvent) -> TurretError | None:
        if event.finish_reason is FinishReason.ABORT and self._tools.lifecycle.expired:
            return CapacityError("the server is shutting down; this request was ended before it was complete")
        return event_error(event)


class Generator:
    """Starts generations on one engine."""

    def __init__(self, parts: ServerParts, config: Config, lifecycle: Lifecycle, metrics: ServerMetrics) -> None:
        server = config.server
        limits = QueueLimits(server.max_queue_requests, server.max_queue_tokens)
        self.queue = AdmissionQueue(limits, ledger=parts.ledger)
        self.calls = OpenCalls(id_prefix(endpoint) for endpoint in parts.endpoints)
        self._log = RequestLog(config.observability, parts.text)
        self.tracer = open_tracer(config.observability.otlp_traces_endpoint, parts.model_names[0])
        self._tools = RunTools(parts, lifecycle, self.calls, metrics, self.tracer)
        self._expander = Expander(config.model.seed, parts.eos_token_ids, parts.text, parts.first_serial)
        self._logprobs_mode = config.model.logprobs_mode

    def start(self, job: Generation) -> Run:
        """A run of `job`; nothing is submitted until it is iterated. Raises `CapacityError` while draining or full."""
        self._tools.lifecycle.check()
        beams = job.length_penalty is not None
        if beams:
            check_beams(job, self._logprobs_mode)
        requests = self._expander.expand(first_requests(job) if beams else job)
        ticket = self.queue.enter(requests)
        self._log.received(job)
        return self._log.watched((BeamRun if beams else GenerationRun)(job, self._tools, requests, ticket))
