"""The scheduler: one loop without phases.

Owns: the waiting and running queues and every request's progress; says who gets how many tokens in a step and what the
step's result means for each request. Knows nothing of workers, sockets or clients: `turret.engine` carries plans to the
worker and results back.

Planning ahead: `plan` advances a request as if its step had run, counting the token it will sample; `commit` fills in
what was sampled. So a step may be planned while others are in flight. When a result shows that a request ended, what
later steps in flight did for it is dropped; likewise after a preemption, where the dropped token is sampled again from
the same state. Blocks are released at once in both cases; `turret.kv.manager` says why that is safe.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterable, Sequence

from turret.contracts import DisplacingPolicy, SchedulerPolicy
from turret.errors import CapacityError, EngineError, PluginError, RequestError
from turret.kv import KVCacheManager
from turret.messages import (
    EngineStats,
    FinishReason,
    Request,
    RequestResult,
    StepPlan,
    StepResult,
    TokenEvent,
)
from turret.scheduler.admission import Admission
from turret.scheduler.displacement import Displacement
from turret.scheduler.draft import Draft, InFlight
from turret.scheduler.limits import SchedulerLimits, check_request, output_limit
from turret.scheduler.progress import Progress, RankedList
from turret.scheduler.running import RunningPlanner
from turret.scheduler.tenants import TenantClock

__all__ = ["Scheduler"]

_MOST_UNTOLD = 1 << 16
"""Sizes of steps that are kept for the next statistics, which offline may never be asked for."""
_LOOK_AHEAD = 16
"""Waiting requests among which a short one is looked for."""


class Scheduler:
    """Plans steps over requests and turns their results into events.

    `add` and `abort` may come at any time between calls; `plan` and `commit` alternate as `limits.async_depth` allows.
    Every request that was added gets exactly one event with a finish reason. Not safe for threads.
    """

    def __init__(self, limits: SchedulerLimits, kv: KVCacheManager, policy: SchedulerPolicy) -> None:
        self.limits = limits
        self._kv = kv
        self._policy = policy
        self._requests: dict[str, Progress] = {}
        self._waiting = RankedList()
        self._running = RankedList()
        self._in_flight: deque[InFlight] = deque()
        self._removed: list[str] = []
        self._deadlines: list[tuple[float, str]] = []  # a heap; those of requests that began or left stay until due
        self._num_arrived = 0
        self._num_planned = 0
        self._preemptions = 0
        self._displaced = 0
        self._prompt_tokens = 0
        self._prompt_tokens_cached = 0
        self._forward_seconds = 0.0
        self._generation_tokens = 0
        self._step_tokens: deque[int] = deque(maxlen=_MOST_UNTOLD)
        self._long_prefill = limits.long_prefill
        self._planner = RunningPlanner(limits, kv, self._choose_victim, self._preempt)
        self._admission = Admission(limits, kv)
        self._clock = TenantClock()
        self._displacement = (
            Displacement(policy, self._admission, self._displace) if isinstance(policy, DisplacingPolicy) else None
        )

    # -- requests come and go ----------------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        """Raise `RequestError`, with the true numbers, when the request could never run to its end."""
        if request.request_id in self._requests:
            raise RequestError(f"a request with the id {request.request_id!r} is already here", "request_id")
        check_request(request, self.limits, self._kv)

    def add(self, request: Request) -> None:
        """Queue a request; raises what `check` raises, or `PluginError` when the policy fails, with nothing done."""
        self.check(request)
        progress = Progress(request, self._num_arrived, output_limit(request, self.limits))
        progress.account = self._clock.enter(request)
        progress.tenant_start = progress.account.start
        self._enqueue(progress)
        self._num_arrived += 1
        self._requests[request.request_id] = progress
        if request.queue_deadline is not None:
            heapq.heappush(self._deadlines, (request.queue_deadline, request.request_id))

    def expire(self) -> list[TokenEvent]:
        """End the requests whose deadline passed before they were ever planned: they never run."""
        events: list[TokenEvent] = []
        while self._deadlines and self._deadlines[0][0] <= time.time():
            deadline, request_id = heapq.heappop(self._deadlines)
            progress = self._requests.get(request_id)
            # An id may have been used again since: then the deadline is another's.
            if (progress is None or progress.first_scheduled is not None
                    or progress.request.queue_deadline != deadline):
                continue
            self._leave(progress)
            events.append(self._expired(progress.request))
        return events

    def abort(self, request_ids: Iterable[str]) -> list[TokenEvent]:
        """End these now and return their blocks; ids that are not here are ignored."""
        events = []
        for request_id in request_ids:
            progress = self._requests.get(request_id)
            if progress is not None:
                self._leave(progress)
                events.append(_ending(request_id, FinishReason.ABORT))
        return events

    def finish_all(self, reason: FinishReason, error: str | None = None) -> list[TokenEvent]:
        """End every request: the engine dies or shuts down."""
        # Lists are cleared, not emptied one by one: this must work after a policy failed in the middle of a step.
        gone, self._requests = self._requests, {}
        self._waiting.clear()
        self._running.clear()
        self._clock.rest()
        for progress in gone.values():
            self._release(progress)
        return [_ending(request_id, reason, error) for request_id in gone]

    # -- what is going on --------------------------------------------------------------------------------------------

    @property
    def has_unfinished(self) -> bool:
        """Whether any request still waits for its last event."""
        return bool(self._requests)

    @property
    def num_in_flight(self) -> int:
        """Steps planned and not yet committed."""
        return len(self._in_flight)

    def counts(self) -> tuple[int, int]:
        """Requests (running, waiting)."""
        return len(self._running), len(self._waiting)

    def stats(self) -> EngineStats:
        """Counters and gauges; lists hold what came since the last call."""
        step_tokens = list(self._step_tokens)
        self._step_tokens.clear()
        stays = self._kv.block_stays()
        return EngineStats(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            kv_cache_usage=self._kv.usage,
            prefix_cache_queries_total=self._kv.prefix_stats.queries,
            prefix_cache_hits_total=self._kv.prefix_stats.hits,
            preemptions_total=self._preemptions + self._displaced,
            prompt_tokens_total=self._prompt_tokens,
            generation_tokens_total=self._generation_tokens,
            prompt_tokens_cached_total=self._prompt_tokens_cached,
            forward_seconds_total=self._forward_seconds,
            step_tokens=step_tokens,
            kv_block_lifetimes=stays.lifetimes,
            kv_block_idle=stays.idle,
            kv_block_reuse_gaps=stays.reuse_gaps,
        )

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget cached prefixes; False, and nothing done, while requests hold blocks.

        With `reset_running_requests` those are preempted first, and run again from their start.
        """
        if reset_running_requests:
            for progress in list(self._running):
                self._preempt(progress)
        return self._kv.reset_prefix_cache()

    # -- steps -------------------------------------------------------------------------------------------------------

    def _chunk_of_long_prompts(self) -> int:
        """Tokens of the coming step that a long prompt may have; 0: what there is."""
        size = self._long_prefill
        if not size or not self.limits.long_prefill_yields:
            return size
        ahead = min(len(self._waiting), _LOOK_AHEAD)
        return size if any(self._waiting[i].num_tokens <= size for i in range(ahead)) else 0

    def plan(self) -> StepPlan | None:
        """The next step, or None when nothing can be done before another `commit`, `add` or `abort`.

        Nothing is planned behind a chunk of a very long prompt: a chunk takes so long that planning ahead saves
        nothing, and whoever comes meanwhile would wait for the next one too.
        """
        if len(self._in_flight) >= self.limits.async_depth or not self._requests:
            return None
        if self._in_flight and self._in_flight[-1].has_chunk:
            return None
        draft = Draft(self.limits.max_num_batched_tokens, self._chunk_of_long_prompts(), self.limits.very_long)
        if self._waiting and self._displacement is not None:
            self._displacement.make_way(draft, self._waiting, self._running)
        self._planner.extend(draft, self._running)
        if self._waiting and not draft.held_back:
            self._admission.admit(draft, self._waiting, self._running)
            for new in draft.new_entries:
                self._clock.began(new[0].tenant_start)
        entries = draft.new_entries + draft.running_entries
        if not entries:
            return None
        self._num_planned += 1
        self._step_tokens.append(draft.num_tokens)
        self._in_flight.append(InFlight(self._num_planned, entries, draft.has_chunk))
        removed, self._removed = self._removed, []
        return StepPlan(step_id=self._num_planned, new=draft.new, running=draft.running, removed=removed)

    def commit(self, result: StepResult) -> list[TokenEvent]:
        """Take the result of the oldest step in flight; one event per request that got a token or ended."""
        entries = self._match(result)
        self._forward_seconds += result.forward_time
        commit = self._kv.commit
        events = []
        for (progress, epoch, end, sampled), outcome in zip(entries, result.results, strict=True):
            if progress.epoch != epoch:
                continue  # ended or preempted since the step was planned
            if outcome.error is not None:
                self._leave(progress)
                events.append(_ending(progress.request_id, FinishReason.ERROR, outcome.error))
                continue
            commit(progress.request_id, end, progress.tokens)
            if outcome.prompt_logprobs and not progress.started:
                progress.prompt_logprobs.extend(outcome.prompt_logprobs)
            if sampled:
                events.append(self._take_tokens(progress, outcome))
        return events

    # -- inside ------------------------------------------------------------------------------------------------------

    def _match(self, result: StepResult) -> list[tuple[Progress, int, int, bool]]:
        """Entries of the oldest step in flight, once it is certain that the result is that step's."""
        if not self._in_flight or self._in_flight[0].step_id != result.step_id:
            expected = self._in_flight[0].step_id if self._in_flight else "none"
            raise EngineError(f"the worker answered step {result.step_id}, but the oldest step in flight is {expected}")
        entries = self._in_flight[0].entries
        if [e[0].request_id for e in entries] != [r.request_id for r in result.results]:
            raise EngineError(f"the worker's answer to step {result.step_id} is not for the requests of its plan")
        self._in_flight.popleft()
        return entries

    def _take_tokens(self, progress: Progress, outcome: RequestResult) -> TokenEvent:
        """Append what was sampled, up to where the request ends; its event."""
        if not outcome.token_ids:
            raise EngineError(f"the worker sampled no token for request {progress.request_id!r}, though its step ended "
                              "at the last known token")
        token_ids = outcome.token_ids
        reason, stop_reason = None, None
        for count, token in enumerate(token_ids, 1):
            progress.tokens.append(token)
            if token in progress.stop_ids:
                reason = FinishReason.STOP
                stop_reason = _stop_reason(progress.request, token)
            elif len(progress.tokens) >= progress.limit:
                reason = FinishReason.LENGTH
            if reason is not None:
                token_ids = token_ids[:count]
                self._leave(progress)
                break
        self._generation_tokens += len(token_ids)
        if not progress.started:
            return self._first_event(progress, token_ids, outcome, (reason, stop_reason))
        return TokenEvent(
            request_id=progress.request_id,
            token_ids=token_ids,
            logprobs=outcome.logprobs,
            finish_reason=reason,
            stop_reason=stop_reason,
        )

    def _first_event(
        self,
        progress: Progress,
        token_ids: list[int],
        outcome: RequestResult,
        end: tuple[FinishReason | None, int | None],
    ) -> TokenEvent:
        progress.started = True
        self._prompt_tokens += progress.num_prompt
        self._prompt_tokens_cached += progress.num_cached
        wanted = progress.request.sampling.prompt_logprobs is not None
        event = TokenEvent(
            request_id=progress.request_id,
            token_ids=token_ids,
            logprobs=outcome.logprobs,
            prompt_logprobs=list(progress.prompt_logprobs) if wanted else None,
            finish_reason=end[0],
            stop_reason=end[1],
            num_cached_tokens=progress.num_cached,
            first_scheduled=progress.first_scheduled,
        )
        progress.prompt_logprobs.clear()
        return event

    def _expired(self, request: Request) -> TokenEvent:
        waited = time.time() - request.arrival_time
        message = (
            f"the request waited {waited:.1f} s for its turn, longer than its queue timeout allows, and was not begun; "
            f"{len(self._running)} requests are running and {len(self._waiting)} waiting"
        )
        return TokenEvent(
            request_id=request.request_id, finish_reason=FinishReason.ERROR, error=message,
            error_status=CapacityError.status, retry_after=max(1.0, waited),
        )

    def _enqueue(self, progress: Progress) -> None:
        """Put a request among the waiting where the policy wants it."""
        try:
            progress.rank = (*self._policy.sort_key(progress.view()), progress.order)
            self._waiting.add(progress)
        except Exception as fault:
            raise PluginError(
                f"scheduling policy {self._policy.name!r} failed in sort_key for request {progress.request_id!r}: "
                f"{type(fault).__name__}: {fault}; choose another with --scheduling-policy"
            ) from fault

    def _choose_victim(self, candidates: Sequence[Progress]) -> Progress:
        """Whom of the running requests that this step has not planned yet the policy gives up."""
        if len(candidates) == 1:
            return candidates[0]
        by_id = {p.request_id: p for p in candidates}
        try:
            return by_id[self._policy.pick_victim([p.view() for p in candidates])]
        except Exception as fault:
            raise PluginError(
                f"scheduling policy {self._policy.name!r} failed in pick_victim: {type(fault).__name__}: {fault}; "
                "choose another with --scheduling-policy"
            ) from fault

    def _preempt(self, progress: Progress) -> None:
        """Back to the queue without blocks; it will be computed again, its outputs so far included."""
        self._preemptions += 1
        self._requeue(progress, 0.0)

    def _displace(self, progress: Progress, behind: Progress) -> None:
        """Back to the queue, behind the request that takes its place."""
        self._displaced += 1
        progress.gave_way = True
        self._requeue(progress, behind.tenant_start)

    def _requeue(self, progress: Progress, behind: float) -> None:
        self._kv.free(progress.request_id)
        self._running.remove(progress)
        self._removed.append(progress.request_id)
        progress.rewind()
        progress.tenant_start = self._clock.again(progress.tenant_start, behind)
        self._enqueue(progress)

    def _leave(self, progress: Progress) -> None:
        """Out of every queue."""
        (self._running if progress.running else self._waiting).remove(progress)
        del self._requests[progress.request_id]
        self._release(progress)
        num_outputs = None if progress.first_scheduled is None else len(progress.tokens) - progress.num_prompt
        self._clock.ended(progress.request, progress.account, num_outputs)
        if not self._requests:
            self._clock.rest()

    def _release(self, progress: Progress) -> None:
        """Blocks returned, results in flight made stale, the worker told."""
        self._kv.free(progress.request_id)
        if progress.in_worker:
            self._removed.append(progress.request_id)
        progress.epoch += 1


def _ending(request_id: str, reason: FinishReason, error: str | None = None) -> TokenEvent:
    return TokenEvent(request_id=request_id, finish_reason=reason, error=error)


def _stop_reason(request: Request, token: int) -> int | None:
    """The stop token id that ended a request; None for an end of sequence."""
    if token in request.eos_token_ids and not request.sampling.ignore_eos:
        return None
    return token
