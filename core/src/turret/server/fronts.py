"""The main process of a server with several front ends.

Owns: the front-end processes, what each is told, and the end of the whole. Knows nothing of HTTP: connections go to the
fronts, which share the listening socket.

A front that dies takes its own connections along, and nothing else: its requests are dropped in the engines, its
counts in the ledger are cleared, and another takes its place; connections that nobody had accepted yet are the others'.
A front that dies before it ever served ends the whole, since the next would too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from turret.engine import Client
from turret.errors import TurretError, error_of_kind
from turret.messages.control import (
    Answer,
    Answers,
    Ask,
    AskAll,
    Begin,
    Boot,
    EngineGone,
    FrontFailed,
    FrontReady,
    StopFront,
    ToMain,
)
from turret.server.front_process import FrontProcess
from turret.server.listening import Listener
from turret.transport import Ledger

__all__ = ["FrontPlan", "Fronts"]

T = TypeVar("T")

log = logging.getLogger("turret.server")

ANSWER_SECONDS = 2.0
"""How long a front may take to answer a question of another."""
RESTART_SECONDS = 1.0
"""Least time between two launches in one place: a front that dies at once must not be started in a busy loop."""
GRACE_SECONDS = 15.0
"""Beyond --shutdown-timeout, until fronts that still run are ended by force."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class FrontPlan:
    """What fronts are made of. `boot(front)` is what a front is told first; `own(what)` is what the main process adds
    to the fronts' answers, if anything; `keep` says, for questions whose answers count on when their front is gone,
    what stays of them."""

    count: int
    boot: Callable[[FrontProcess], Boot]
    own: Callable[[str], Any]
    keep: Mapping[str, Callable[[list[Any]], Any]]
    ledger: Ledger
    shutdown_timeout: float


class Fronts:
    """Launch them early (`launch`), let them serve (`run`)."""

    def __init__(self, plan: FrontPlan, listener: Listener) -> None:
        self._plan = plan
        self._listener = listener
        self._fronts: dict[int, FrontProcess] = {}
        self._serials = itertools.count()
        self._begin: Begin | None = None
        self._client: Client | None = None
        self._gathering: dict[int, _Gathering] = {}
        self._call_ids = itertools.count(1)
        self._last: dict[tuple[int, str], Any] = {}  # by place and question: what its front said last
        self._past: dict[str, Any] = {}  # by question: what stays of fronts that are gone
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self._stopping = 0
        self._failure: TurretError | None = None

    async def launch(self) -> None:
        """Start all processes; they import and load their tokenizer while the engines load."""
        for place in range(self._plan.count):
            await self._launch(place)

    async def meanwhile(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that goes on while the fronts start; raises what kept one of them from starting, at once."""
        task, over = asyncio.ensure_future(work), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
                raise self._failure or TurretError("the front ends ended")
            return task.result()
        finally:
            over.cancel()
            task.cancel()

    async def run(self, client: Client, addresses: Sequence[str], ready: Callable[[], None]) -> None:
        """Serve until a signal; `ready` is called once every front accepts. Raises what kept one from starting."""
        self._client = client
        self._begin = Begin(list(addresses), [engine.ready for engine in client.engines])
        for front in self._fronts.values():
            front.channel.send(self._begin)
        for engine in client.engines:
            if engine.dead_reason is None:
                engine.watch()
            self._start(self._watch_engine(engine.index))
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            with contextlib.suppress(TurretError):  # raised below, after the end
                await self.meanwhile(self._ready.wait())
                ready()
            await self._over.wait()
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """First call: all drain, then end. Second call: all end now."""
        self._stopping += 1
        self._listener.sock.close()  # ours; each front closes its own when it has drained
        for front in self._fronts.values():
            front.channel.send(StopFront())
        if self._stopping == 1:
            self._start(self._insist())
        if not self._fronts:
            self._over.set()

    def end(self) -> None:
        """End all processes now; safe to repeat."""
        self._stopping += 1
        for front in self._fronts.values():
            front.kill()

    async def _launch(self, place: int) -> None:
        front = FrontProcess(place, next(self._serials))
        self._fronts[place] = front
        await front.launch(self._plan.boot(front), self._listener.sock)
        if self._begin is not None:
            front.channel.send(self._begin)
        self._start(self._listen(front))

    async def _listen(self, front: FrontProcess) -> None:
        """Hear a front out until it is gone."""
        while (frame := await front.channel.receive()) is not None:
            self._handle(front, frame)
        how = await front.end()
        del self._fronts[front.place]
        self._bury(front)
        if self._stopping:
            if not self._fronts:
                self._over.set()
        elif not front.ready:
            self._fail(f"front end {front.place} {how} before it was ready")
        else:
            log.error(
                "front end %d (process %d) %s: its connections are closed, its requests are dropped; another takes its "
                "place", front.place, front.pid, how,
            )  # fmt: skip
            await asyncio.sleep(RESTART_SECONDS)
            if not self._stopping:
                await self._launch(front.place)

    def _handle(self, front: FrontProcess, frame: ToMain) -> None:
        if isinstance(frame, FrontReady):
            front.ready = True
            if len(self._fronts) == self._plan.count and all(f.ready for f in self._fronts.values()):
                self._ready.set()
            for engine in self._client.engines if self._client is not None else ():
                if engine.dead_reason is not None:  # it died while this front started
                    front.channel.send(_gone(engine.index, engine.name, engine.dead_reason))
        elif isinstance(frame, FrontFailed):
            self._failure = error_of_kind(frame.kind, frame.message)
        elif isinstance(frame, AskAll):
            self._start(self._gather(front, frame))
        elif isinstance(frame, Answer) and (gathering := self._gathering.get(frame.call_id)) is not None:
            gathering.add(front.place, frame.value)

    def _bury(self, front: FrontProcess) -> None:
        """Nobody waits any more for what this front asked."""
        self._plan.ledger.clear(front.place)
        if self._client is not None:
            for engine in self._client.engines:
                engine.forget(front.name.encode())
        for place, what in [key for key in self._last if key[0] == front.place]:
            before = [self._past[what]] if what in self._past else []
            self._past[what] = self._plan.keep[what]([*before, self._last.pop((place, what))])
        for gathering in self._gathering.values():
            gathering.leave(front.place)

    async def _gather(self, asker: FrontProcess, question: AskAll) -> None:
        """Put a front's question to all, and carry the answers back."""
        call_id = next(self._call_ids)
        places = [front.place for front in self._fronts.values() if front.ready]
        gathering = self._gathering[call_id] = _Gathering(places)
        for place in places:
            self._fronts[place].channel.send(Ask(call_id, question.what, question.argument))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(gathering.complete.wait(), ANSWER_SECONDS)
        del self._gathering[call_id]
        if question.what in self._plan.keep:
            self._last.update({(place, question.what): value for place, value in gathering.values.items()})
        late = [self._last[p, question.what] for p in gathering.missing if (p, question.what) in self._last]
        more = [self._plan.own(question.what), self._past.get(question.what)]
        values = [*gathering.values.values(), *late, *(value for value in more if value is not None)]
        asker.channel.send(Answers(question.call_id, values))

    async def _watch_engine(self, index: int) -> None:
        """Tell everybody when an engine is gone."""
        assert self._client is not None
        engine = self._client.engines[index]
        reason = await engine.wait_dead()
        for front in self._fronts.values():
            front.channel.send(_gone(index, engine.name, reason))
        if not self._stopping:
            left = sum(other.dead_reason is None for other in self._client.engines)
            rest = f"the other {left} go on" if left else "restart the server"
            log.error("the engine is gone: %s; its open requests got an error, /health answers 503; %s", reason, rest)

    async def _insist(self) -> None:
        """Fronts that do not end in time are ended."""
        await asyncio.sleep(self._plan.shutdown_timeout + GRACE_SECONDS)
        for front in self._fronts.values():
            log.error("front end %d does not end and is killed", front.place)
            front.kill()

    def _fail(self, sentence: str) -> None:
        self._failure = self._failure or TurretError(sentence)
        self.end()
        if not self._fronts:
            self._over.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Gathering:
    """Answers to one question, by place."""

    def __init__(self, places: Sequence[int]) -> None:
        self.missing = set(places)
        self.values: dict[int, Any] = {}
        self.complete = asyncio.Event()
        self.leave(-1)

    def add(self, place: int, value: Any) -> None:
        """A front answered."""
        if place in self.missing and value is not None:
            self.values[place] = value
        self.leave(place)

    def leave(self, place: int) -> None:
        """Nothing more comes from a front."""
        self.missing.discard(place)
        if not self.missing:
            self.complete.set()


def _gone(index: int, name: str, reason: str) -> EngineGone:
    """The front's own client puts the engine's name before what it hears."""
    return EngineGone(index, reason.removeprefix(f"{name}: "))
