"""When things happened in one call, told to the metrics, to the trace and to the plugins that listen.

Owns: clocks of one call and its choices. Knows nothing of the engine; it sees the events go by.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from turret.messages import FinishReason, TokenEvent
from turret.plugins import Hooks
from turret.plugins.events import RequestFinished, RequestFirstToken, RequestReceived
from turret.server.choices import Choice
from turret.server.expansion import Generation
from turret.server.metrics import RequestSeries, ServerMetrics
from turret.server.tracing import CallSpan, CallTracer

__all__ = ["CallTimer"]


@dataclass(slots=True)
class _ChoiceClock:
    """Times of one choice, in seconds of `time.time()`; 0 = not yet."""

    scheduled: float = 0.0
    first: float = 0.0
    last: float = 0.0


class CallTimer:
    """Watches one call; leaving its `with` counts the choices that never ended as aborted."""

    def __init__(
        self, job: Generation, metrics: ServerMetrics, hooks: Hooks, tracer: CallTracer | None = None
    ) -> None:
        self._metrics = metrics
        self._hooks = hooks
        self._tracer = tracer
        self._reason = FinishReason.ABORT.value
        self._job = job
        self._arrival = job.arrival_time or time.time()
        self._clocks: dict[int, _ChoiceClock] = {}
        self._finished: list[int] = []
        self._num_choices = len(job.prompts) * job.params.n
        self._open: dict[int, Choice] = {}
        self._engine_of: Callable[[str], int] = _first_engine

    def __enter__(self) -> Self:
        received = RequestReceived(self._job.request_id, self._num_prompt_tokens, self._arrival)
        self._hooks.notify("request_received", received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for choice in self._open.values():
            self._series(choice).finished(FinishReason.ABORT.value)
        told = len(self._finished) == self._num_choices or self._reason == FinishReason.ERROR.value
        reason = self._reason if told else FinishReason.ABORT.value
        spent, output = time.time() - self._arrival, sum(self._finished)
        finished = RequestFinished(self._job.request_id, reason, self._num_prompt_tokens, output, spent)
        self._hooks.notify("request_finished", finished)
        if self._tracer is not None:
            self._tracer.record(self._span(reason))

    @property
    def _num_prompt_tokens(self) -> int:
        return sum(len(prompt) for prompt in self._job.prompts)

    def submitted(self, choices: Sequence[Choice], engine_of: Callable[[str], int]) -> None:
        """The engines have the call; `engine_of` says which has a choice's request. What was asked is counted with the
        first."""
        self._open = {choice.index: choice for choice in choices}
        self._engine_of = engine_of
        series = self._series(choices[0])
        series.params_n.observe(self._job.params.n)
        for limit in self._job.max_tokens:
            series.params_max_tokens.observe(limit)

    def failed(self, choice: Choice) -> None:
        """A choice could not be finished."""
        self._open.pop(choice.index, None)
        self._finished.append(0)
        self._reason = FinishReason.ERROR.value
        self._series(choice).finished(FinishReason.ERROR.value)

    def saw(self, choice: Choice, event: TokenEvent) -> None:
        """An event went by."""
        clock = self._clocks.setdefault(choice.index, _ChoiceClock())
        if event.first_scheduled is not None and not clock.scheduled:
            clock.scheduled = event.first_scheduled
        if not event.token_ids:
            return
        now = time.time()
        if not clock.first:
            if not any(other.first for other in self._clocks.values()):
                self._hooks.notify("request_first_token", RequestFirstToken(self._job.request_id, now - self._arrival))
            clock.first = now
            self._series(choice).first_token.observe(now - self._arrival)
        else:
            gap = (now - clock.last) / len(event.token_ids)
            inter_token = self._series(choice).inter_token
            for _ in event.token_ids:
                inter_token.observe(gap)
        clock.last = now

    def finished(self, choice: Choice, reason: str | None) -> None:
        """A choice ended."""
        metrics, now, clock = self._series(choice), time.time(), self._clocks[choice.index]
        self._open.pop(choice.index, None)
        self._reason = reason or FinishReason.ABORT.value
        metrics.finished(self._reason)
        prompt_tokens = len(self._job.prompts[choice.index // self._job.params.n])
        metrics.prompt_tokens.observe(prompt_tokens)
        metrics.computed_tokens.observe(prompt_tokens - choice.num_cached_tokens)
        metrics.generation_tokens.observe(choice.num_tokens)
        metrics.latency.observe(now - self._arrival)
        scheduled = clock.scheduled or self._arrival
        metrics.queue_time.observe(max(0.0, scheduled - self._arrival))
        metrics.inference_time.observe(max(0.0, now - scheduled))
        if clock.first:
            metrics.prefill_time.observe(max(0.0, clock.first - scheduled))
            metrics.decode_time.observe(now - clock.first)
            if choice.num_tokens > 1:
                metrics.per_token.observe((clock.last - clock.first) / (choice.num_tokens - 1))
        self._finished.append(choice.num_tokens)
        if len(self._finished) == self._num_choices:
            metrics.max_generation_tokens.observe(max(self._finished))

    def _span(self, reason: str) -> CallSpan:
        """The call as a trace shows it: its phases are those of the choice that was first in each."""
        job, now = self._job, time.time()
        scheduled = min((c.scheduled for c in self._clocks.values() if c.scheduled), default=None)
        first = min((c.first for c in self._clocks.values() if c.first), default=None)
        last = max((c.last for c in self._clocks.values()), default=0.0)
        facts: dict[str, float | int | str | None] = {
            "request_id": job.request_id,
            "temperature": job.params.temperature,
            "top_p": job.params.top_p,
            "max_tokens": max(job.max_tokens),
            "n": job.params.n,
            "num_sequences": self._num_choices,
            "prompt_tokens": self._num_prompt_tokens,
            "completion_tokens": sum(self._finished) + sum(choice.num_tokens for choice in self._open.values()),
            "time_in_queue": None if scheduled is None else max(0.0, scheduled - self._arrival),
            "time_to_first_token": None if first is None else first - self._arrival,
        }
        if scheduled is not None and first is not None:
            facts["time_in_model_prefill"] = max(0.0, first - scheduled)
            facts["time_in_model_decode"] = last - first
            facts["time_in_model_inference"] = max(0.0, last - scheduled)
        return CallSpan(self._arrival, now, reason, facts, dict(job.trace_headers))

    def _series(self, choice: Choice) -> RequestSeries:
        return self._metrics.engines[self._engine_of(choice.request_id)]


def _first_engine(request_id: str) -> int:
    """Where a request is counted that no engine has."""
    return 0
