"""Several engines behind one client: replicas of one model, each with a device and a cache of its own.

Owns: which engine has which request, and the count of work each has outstanding. Knows nothing of HTTP, nor of what
the engines run on: one `EngineClient` reaches each.

A call's requests share a stream. Choices of one prompt stay together, so that they share its blocks; prompts of one
call may go to different engines. An engine that dies ends its own requests and no others: the rest keep serving, and
`fault` says from then on that the whole is not well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from turret.engine.client import EngineClient
from turret.engine.ports import Progress
from turret.engine.router import OPEN_WORK, choose_engine
from turret.engine.stream import EngineStream
from turret.errors import TurretError, error_of_kind, kind_of_error
from turret.messages import DRAINED_STATS, EngineReady, EngineStats, Request, TokenEvent
from turret.transport import SharedCount

__all__ = ["EngineFleet", "merged_stats"]


class EngineFleet:
    """Several `EngineClient`s behind the calls of one. `work` counts for each engine what it has to do, over all front
    ends that share the engines."""

    def __init__(self, engines: Sequence[EngineClient], work: Sequence[SharedCount]) -> None:
        self.engines: Sequence[EngineClient] = tuple(engines)
        self._work = tuple(work)
        self._ready: EngineReady | None = None

    async def start(self, progress: Progress | None = None) -> EngineReady:
        """Wait until all are up; the first that fails ends the others and is named in what is raised."""
        tasks = [asyncio.ensure_future(self._start(engine, progress)) for engine in self.engines]
        try:
            found = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.shutdown()
            raise
        self._ready = min(found, key=lambda ready: ready.num_blocks)
        return self._ready

    async def _start(self, engine: EngineClient, progress: Progress | None) -> EngineReady:
        def report(stage: str, fraction: float) -> None:
            if progress is not None:
                progress(f"{engine.name}: {stage}", fraction)

        try:
            return await engine.start(report)
        except TurretError as error:
            raise error_of_kind(kind_of_error(error), f"{engine.name}: {error}") from error

    @property
    def ready(self) -> EngineReady:
        """Facts of the engine with the smallest cache, so that what fits there fits anywhere."""
        return self._ready or self.engines[0].ready

    @property
    def stats(self) -> EngineStats:
        """The latest of all engines, added up."""
        return merged_stats([engine.stats for engine in self.engines])

    @property
    def stats_listener(self) -> Callable[[int, EngineStats], None] | None:
        """Sees what each engine tells, beside the engine's index."""
        return self.engines[0].stats_listener

    @stats_listener.setter
    def stats_listener(self, listener: Callable[[int, EngineStats], None] | None) -> None:
        for engine in self.engines:
            engine.stats_listener = listener

    @property
    def dead_reason(self) -> str | None:
        """Why nothing can be served any more; None while an engine lives."""
        reasons = [engine.dead_reason for engine in self.engines]
        return None if None in reasons else "; ".join(filter(None, reasons))

    @property
    def fault(self) -> str | None:
        """What is wrong: the engines that are gone; None while all live."""
        return "; ".join(e.dead_reason for e in self.engines if e.dead_reason is not None) or None

    @property
    def healthy(self) -> bool:
        """True while all engines are up and take requests."""
        return all(engine.healthy for engine in self.engines)

    @property
    def num_open(self) -> int:
        """Requests without a last event."""
        return sum(engine.num_open for engine in self.engines)

    def submit(self, requests: Request | Sequence[Request]) -> EngineStream:
        """As `EngineClient.submit`: all of the requests, or an error and none of them."""
        batch = [requests] if isinstance(requests, Request) else list(requests)
        stream = _FleetStream(batch, self._drop, self._work)
        try:
            for group in _together(batch):
                index = self._choose(group[0])
                self.engines[index].submit(group, stream)
                stream.place(group, index)
        except BaseException:
            stream.close()
            raise
        return stream

    async def generate(self, request: Request) -> AsyncIterator[TokenEvent]:
        """The events of one request; leaving the loop early aborts it."""
        async with self.submit(request) as stream:
            async for event in stream:
                yield event

    async def abort(self, request_ids: Sequence[str]) -> None:
        """Drop requests now, wherever they are; their streams end with an abort event. Unknown ids are ignored."""
        for engine in self.engines:
            await engine.abort(request_ids)

    async def call(self, method: str, *args: Any) -> Any:
        """Call a method of every engine that lives: `stats` are added up, yes and no become one answer (yes when all
        say so), anything else is a list in the engines' order. Raises `EngineError`."""
        live = [e for e in self.engines if e.dead_reason is None] or self.engines
        answers = await asyncio.gather(*(engine.call(method, *args) for engine in live))
        if method == "stats":
            return _added(answers)
        return all(answers) if all(isinstance(answer, bool) for answer in answers) else answers

    async def wait_dead(self) -> str:
        """Block until all engines are gone; why."""
        await asyncio.gather(*(engine.wait_dead() for engine in self.engines))
        return self.dead_reason or ""

    async def deaths(self) -> AsyncIterator[str]:
        """One sentence for each engine that is gone, as it happens."""
        for next_death in asyncio.as_completed([engine.wait_dead() for engine in self.engines]):
            yield await next_death

    async def shutdown(self, timeout: float = 0.0) -> None:
        """End all engines; as `EngineClient.shutdown`."""
        await asyncio.gather(*(engine.shutdown(timeout) for engine in self.engines))

    def _choose(self, request: Request) -> int:
        work = [
            count.total if engine.dead_reason is None else None
            for engine, count in zip(self.engines, self._work, strict=True)
        ]
        return choose_engine(work, request, self.ready.block_size)

    def _drop(self, request_ids: list[str], engine: int) -> None:
        self.engines[engine].drop(request_ids)


class _FleetStream(EngineStream):
    """A stream whose requests may be with several engines; counts their work while they have it."""

    __slots__ = ("_by_engine", "_drop_at", "_placed", "_work")

    def __init__(
        self, requests: Sequence[Request], drop: Callable[[list[str], int], None], work: Sequence[SharedCount]
    ) -> None:
        super().__init__([request.request_id for request in requests], self._drop_placed)
        self._drop_at = drop
        self._work = work
        self._placed: dict[str, int] = {}  # work still counted of each open request
        self._by_engine: dict[str, int] = {}

    def place(self, group: Sequence[Request], engine: int) -> None:
        """These requests went to an engine: the prompt counts once, for the choices after the first find it cached."""
        for position, request in enumerate(group):
            weight = OPEN_WORK + (len(request.prompt_token_ids) if position == 0 else 0)
            self._placed[request.request_id] = weight
            self._by_engine[request.request_id] = engine
            self._work[engine].add(weight)

    def engine_of(self, request_id: str) -> int:
        """The index of the engine that has a request."""
        return self._by_engine.get(request_id, 0)

    def put(self, event: TokenEvent) -> None:
        """One event more: the first takes the prompt's work off, the last the request's."""
        weight = self._placed.get(event.request_id)
        if weight is not None:
            left = 0 if event.finish_reason is not None else OPEN_WORK
            if left != weight:
                self._work[self._by_engine[event.request_id]].add(left - weight)
                self._placed[event.request_id] = left
            if not left:
                del self._placed[event.request_id]
        super().put(event)

    def _drop_placed(self, request_ids: list[str]) -> None:
        by_engine: dict[int, list[str]] = {}
        for request_id in request_ids:
            if (engine := self._by_engine.get(request_id)) is not None:
                by_engine.setdefault(engine, []).append(request_id)
        for engine, theirs in by_engine.items():
            self._drop_at(theirs, engine)


def merged_stats(all_stats: Sequence[EngineStats]) -> EngineStats:
    """Counters and gauges added up; the cache's share is the mean."""
    counted = {
        name: sum(getattr(stats, name) for stats in all_stats)
        for name in EngineStats.__struct_fields__
        if name not in ("kv_cache_usage", *DRAINED_STATS)
    }
    return EngineStats(kv_cache_usage=sum(s.kv_cache_usage for s in all_stats) / len(all_stats), **counted)


def _together(requests: Iterable[Request]) -> list[list[Request]]:
    """Requests in order, those of one prompt in one list."""
    groups: list[list[Request]] = []
    for request in requests:
        last = groups[-1][0] if groups else None
        same = last is not None and last.prompt_token_ids is request.prompt_token_ids
        if same:
            groups[-1].append(request)
        else:
            groups.append([request])
    return groups


def _added(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The `stats` of several engines as one."""
    added: dict[str, Any] = {}
    for name, first in answers[0].items():
        values = [answer[name] for answer in answers]
        added[name] = [item for items in values for item in items] if isinstance(first, list) else sum(values)
    added["kv_cache_usage"] /= len(answers)
    return added
